"""Can this model evaluate a tree of continuations? Decided by comparing numbers, not by architecture names.

A small forest with histories as long as those of the run is evaluated packed and by the plain forward. The tree is
used if

- in float32 every packed number is the plain one up to rounding, and forwards with a mask that was made wrong on
  purpose are far from it (half-precision weights are widened while they are used);
- in the run's own dtype packed numbers are about as near to those of float32 as the plain forward's are;
- the settings name no local span longer than the forest that no layer hands to its attention: such a span lives in a
  mask that packed forwards do not see.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rote.models.hf_float32 import widened
from rote.models.hf_head import ChunkedHead
from rote.models.hf_tree import TreeSessionHF
from rote.models.probe_forest import Forest, probing_forest

USUAL_TOKENS = 100
"""Length of the histories that are compared where nobody says how long they will be."""
FEWEST_TOKENS = 8
TOLERANCE = 1e-5
"""Largest difference in float32 beside what `SPREAD` allows, as a share of the spread of a row of logits."""
SPREAD = 10
"""How many times as far as plain forwards of different shapes packed ones may be off in float32."""
NOISE = 3
"""How many times as far as plain forwards packed ones may be from float32 in the run's dtype."""
TOLD_APART = 30
"""How many times the limit a wrong mask must move the numbers by, at least where histories are short."""
REFUSALS = (NotImplementedError, TypeError, AttributeError, KeyError, RuntimeError, ValueError, IndexError)


class Probed(NamedTuple):
    """What a probe found out."""

    fault: str | None
    """Why packed forwards cannot be used, as the rest of a sentence about the model; None when they can."""
    span: int | None
    """A local span that lives in a mask alone: packed forwards are right for histories up to its length."""

    def why_not(self, longest: int | None) -> str | None:
        """Why histories of up to `longest` tokens, or of any length, cannot be searched as a tree; None if they can."""
        if self.fault is not None or self.span is None or (longest is not None and longest <= self.span):
            return self.fault
        return f"keeps attention within {self.span} tokens by a mask alone"


@torch.inference_mode()
def probe_trees(head: ChunkedHead, *, tokens: int) -> Probed:
    """Compare packed tree forwards with plain ones on histories of up to `tokens` tokens."""
    forest = probing_forest(max(FEWEST_TOKENS, tokens), head.vocab_size, head.model.device)
    session = TreeSessionHF(head, forest.slots, forest.entries)
    try:
        packed = forest.packed_logits(session)
    except torch.OutOfMemoryError:
        raise
    except REFUSALS as error:
        return Probed(f"cannot take tree attention ({type(error).__name__})", None)
    if not _is_right(head, forest, session, packed):
        return Probed("gives other numbers with tree attention", None)
    return Probed(None, _hidden_span(head.model, session.windows_seen))


def _is_right(head: ChunkedHead, forest: Forest, session: TreeSessionHF, packed: list[Tensor]) -> bool:
    is_exact = head.model.dtype == torch.float32  # what was packed is in float32 already
    try:
        with widened(head.model):
            exact, together = forest.plain_logits(head), forest.plain_logits(head, in_one_batch=True)
            wide = session if is_exact else TreeSessionHF(head, forest.slots, forest.entries)
            found = packed if is_exact else forest.packed_logits(wide)
            if not _is_right_in_float32(forest, wide, found, together=together, exact=exact):
                return False
    except torch.OutOfMemoryError:
        raise
    except REFUSALS:
        # Weights that are kept elsewhere, or in another form, cannot be widened: the run's dtype must do.
        exact, is_exact = forest.plain_logits(head), False
    if not is_exact:
        together = forest.plain_logits(head, in_one_batch=True)
    limit = NOISE * _medians(forest, together, exact).amax() + max(TOLERANCE, torch.finfo(head.model.dtype).eps)
    return bool((_medians(forest, packed, exact) <= limit).all())


def _is_right_in_float32(
    forest: Forest, session: TreeSessionHF, packed: list[Tensor], *, together: list[Tensor], exact: list[Tensor]
) -> bool:
    """`session` holds the forest's histories, as `packed` was computed; `together` and `exact` are plain."""
    limit = TOLERANCE + SPREAD * torch.cat(_distances(together, exact)).amax()
    if not bool((torch.cat(_distances(packed, exact)) <= limit).all()):
        return False
    for batch in forest.wrong:
        (distances,) = _distances([session.forward(batch)], exact[-1:])
        by_slot = torch.stack([rows.median() for rows in torch.split(distances, forest.steps[-1].per_slot)])
        if not bool(by_slot.amax() >= TOLD_APART * limit):
            return False
    return True


def _medians(forest: Forest, found: list[Tensor], exact: list[Tensor]) -> Tensor:
    """By step and slot. Not the largest: after a rounding a router of experts may choose others."""
    per_slot = [
        torch.split(rows, step.per_slot) for rows, step in zip(_distances(found, exact), forest.steps, strict=True)
    ]
    return torch.stack([rows.median() for step in per_slot for rows in step])


def _distances(found: list[Tensor], exact: list[Tensor]) -> list[Tensor]:
    """Root mean square difference of each row of logits, as a share of the row's spread. [rows] by step"""
    return [(one - other).square().mean(-1).sqrt() / other.std(-1) for one, other in zip(found, exact, strict=True)]


def _hidden_span(model: Any, windows_seen: set[int | None]) -> int | None:
    """A local span that the settings name and that no layer handed over."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds and all(kind == "full_attention" for kind in kinds):
        return None
    longest = getattr(config, "max_position_embeddings", None) or math.inf
    for name in ("sliding_window", "attention_chunk_size"):
        span = getattr(config, name, None)
        if isinstance(span, int) and 0 < span < longest and span not in windows_seen:
            return span
    return None
