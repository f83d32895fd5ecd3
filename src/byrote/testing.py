"""For the tests of those who bring their own model: `byrote.testing.check_model(model)`.

A model that passes gives the numbers of its `next_logits` in every batch and at every moment. No check from outside
shows whether these are the numbers the model should have.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from byrote.errors import ModelError
from byrote.models.hf.probe import probing_forest
from byrote.models.load import PROBE_TEXT, OwnModel

__all__ = ["check_model"]

MOST_VARIANTS = 256
"""Tokens tried at one place of a history."""
FOREST_TOKENS = 12
Tokens = Sequence[int]


def check_model(
    model: Any,
    *,
    context_tokens: int = 1,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> None:
    """Raise a `ModelError` that names the first fault of a model; return when none was found.

    Looked for: a table of another shape than the histories by the vocabulary; numbers that are NaN or +inf;
    log-probabilities whose rows do not add up to 1, and probabilities where logits are expected; answers that do not
    depend on the token `context_tokens` before the next one; answers that depend on what was asked before; rows in
    another order than the histories, or that depend on the others; end-of-text tokens, texts or a tree session that do
    not fit. Histories are random. Numbers may differ by `tolerance` nats, relative to their size where that is larger.
    """
    asked = model if isinstance(model, OwnModel) else OwnModel(model)
    generator = torch.Generator().manual_seed(seed)
    histories: list[list[int]] = torch.randint(asked.vocab_size, (5, 5), generator=generator).tolist()
    histories[1][2] = asked.vocab_size - 1
    first = _numbers(asked, histories)
    _check_context(asked, histories[0], context_tokens, tolerance)
    _check_memory(asked, histories, first, tolerance)
    _check_rows(asked, histories, first, tolerance)
    _check_tokens(asked)
    if asked.searches_trees:
        _check_session(asked, tolerance)


def _log_probs(model: OwnModel, histories: Sequence[Tokens]) -> Tensor:
    try:
        logits = model.next_logits(histories)
    except ModelError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise ModelError(
            f"{model.name} raised {type(error).__name__} ({error}) for histories of {len(histories[0])} tokens from "
            f"0 … {model.vocab_size - 1}; it must answer all of them."
        ) from error
    return logits.double().log_softmax(-1)


def _numbers(model: OwnModel, histories: Sequence[Tokens]) -> Tensor:
    """The log-probabilities after each history, which must be numbers and no probabilities."""
    log_probs = _log_probs(model, histories)
    if bool(log_probs.isnan().any()):
        raise ModelError(f"{model.name} gave NaN, +inf or a row without any possible token; every row needs numbers.")
    logits = model.next_logits(histories).double()
    sums = logits.sum(-1)
    if bool(((logits >= 0) & (logits <= 1)).all()) and bool((sums - 1).abs().max() < 1e-3):
        raise ModelError(
            f"next_logits of {model.name} gave probabilities: rows between 0 and 1 that add up to 1. Return their "
            "logarithms, which next_log_probs may promise to be normalised."
        )
    return log_probs


def _check_context(model: OwnModel, history: Tokens, context_tokens: int, tolerance: float) -> None:
    if not 1 <= context_tokens <= len(history):
        raise ModelError(f"context_tokens is {context_tokens}; the histories have 1 to {len(history)} tokens.")
    step = max(1, model.vocab_size // MOST_VARIANTS)
    variants = [list(history) for _ in range(0, model.vocab_size, step)]
    for number, variant in enumerate(variants):
        variant[-context_tokens] = number * step
    answers = _log_probs(model, variants)
    if all(_is_same(row, answers[0], tolerance) for row in answers):
        raise ModelError(
            f"{model.name} ignores its context: {len(variants)} histories that differ in the token {context_tokens} "
            "before the next one got the same answer."
        )


def _check_memory(model: OwnModel, histories: Sequence[Tokens], first: Tensor, tolerance: float) -> None:
    """Asked again after other batches, of the same shape and of another, the answers are the same."""
    _log_probs(model, [list(reversed(history)) for history in histories])
    _log_probs(model, [history[:-1] for history in histories[:2]])
    if not _is_same(_log_probs(model, histories), first, tolerance):
        raise ModelError(
            f"{model.name} gave other numbers when it was asked the same again: state leaks from one batch into the "
            "next, or chance plays a part."
        )


def _check_rows(model: OwnModel, histories: Sequence[Tokens], together: Tensor, tolerance: float) -> None:
    """A history gets the same row alone and in a batch."""
    alone = torch.cat([_log_probs(model, [history]) for history in histories])
    if _is_same(alone, together, tolerance):
        return
    if all(_is_same(row, alone[0], tolerance) for row in alone):
        raise ModelError(
            f"{model.name} gave every history asked alone the first one's row: state leaks from one batch to the next."
        )
    if all(any(_is_same(row, other, tolerance) for other in together) for row in alone):
        raise ModelError(
            f"{model.name} gave the rows of a batch in another order than its histories; row i belongs to history i."
        )
    raise ModelError(
        f"{model.name} gave a history another row in a batch than alone; rows must not depend on each other."
    )


def _check_tokens(model: OwnModel) -> None:
    beyond = sorted(token for token in model.eos_ids if not 0 <= token < model.vocab_size)
    if beyond:
        raise ModelError(f"eos_ids of {model.name} has {beyond[0]}, but tokens are 0 … {model.vocab_size - 1}.")
    if not model.has_texts:
        return
    (encoding,) = model.encode_batch([PROBE_TEXT])
    if any(not 0 <= token < model.vocab_size for token in encoding.ids):
        raise ModelError(
            f"the tokenizer of {model.name} gave the token {max(encoding.ids)}, but tokens are "
            f"0 … {model.vocab_size - 1}: vocab_size or the tokenizer is wrong."
        )
    ends = [end for span in encoding.spans for end in span]
    if len(encoding.spans) != len(encoding.ids) or ends != sorted(ends) or ends[-1:] > [len(PROBE_TEXT)]:
        raise ModelError(f"encode_batch of {model.name} must give one character span for each token, in order.")


def _check_session(model: OwnModel, tolerance: float) -> None:
    """The model's own tree session has the numbers of whole histories, for forks, dead branches and reused entries."""
    longest = FOREST_TOKENS if model.max_positions is None else min(FOREST_TOKENS, model.max_positions)
    forest = probing_forest(longest, model.vocab_size, model.device)
    session = model.open_tree(forest.slots, forest.entries, longest=longest)
    with torch.inference_mode():
        packed = forest.packed_logits(session)
    for step, logits in zip(forest.steps, packed, strict=True):
        alone = torch.cat([_log_probs(model, [history]) for history in step.histories])
        if logits.shape != alone.shape or not _is_same(logits.cpu().double().log_softmax(-1), alone, tolerance):
            raise ModelError(
                f"the tree session of {model.name} gave other numbers than next_logits for the same histories."
            )


def _is_same(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    is_near = (found - expected).abs() <= tolerance * (1 + expected.abs())  # NaN, and so false, where both are −inf
    return bool((is_near | (found == expected)).all())
