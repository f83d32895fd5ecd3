"""Can this model evaluate a tree of continuations? Decided by comparing numbers, not by architecture names.

A small forked tree with a prefix, reused entries and two slots of different lengths is evaluated packed and, history
by history, by the plain forward. Agreement within the precision of the weights means yes, unless the settings name a
local span longer than this small tree that no layer hands to its attention: such a span lives in the mask alone.
"""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from rote.models.base import TreeBatch
from rote.models.hf_head import ChunkedHead
from rote.models.hf_tree import TreeSessionHF

PREFIXES = ((5, 9, 2, 7, 11, 3, 8), (4, 6, 1))
FORKS = ((10, 12), (13, 14))
ENTRIES = 12
TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@torch.inference_mode()
def can_search_trees(head: ChunkedHead) -> bool:
    """True when packed tree forwards reproduce the plain forward."""
    model, device = head.model, head.model.device
    session = TreeSessionHF(head, slots=2, entries=ENTRIES)
    try:
        packed = _packed_logits(session, device, head.vocab_size)
    except torch.OutOfMemoryError:
        raise
    except (NotImplementedError, TypeError, AttributeError, KeyError, RuntimeError, ValueError, IndexError) as error:
        warnings.warn(
            f"{type(model).__name__} cannot take tree attention ({type(error).__name__}); histories are recomputed, "
            "which is slower and gives the same numbers.",
            stacklevel=2,
        )
        return False
    plain = _plain_logits(model, device, head.vocab_size)
    scale = plain.abs().amax()
    is_close = bool(((packed - plain).abs().amax() / scale) < TOLERANCE.get(model.dtype, 1e-3))
    if not is_close:
        warnings.warn(
            f"{type(model).__name__} gives other numbers with tree attention; histories are recomputed instead.",
            stacklevel=2,
        )
        return False
    hidden = _hidden_span(model, session.windows_seen)
    if hidden is not None:
        warnings.warn(
            f"{type(model).__name__} keeps attention within {hidden} tokens by a mask alone; histories are recomputed, "
            "which is slower and gives the same numbers.",
            stacklevel=2,
        )
    return hidden is None


def _hidden_span(model: Any, windows_seen: set[int | None]) -> int | None:
    """A local span that the settings name, that is too long for the probe to notice, and that no layer handed over."""
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


def _plain_logits(model: Any, device: torch.device, vocab_size: int) -> Tensor:
    rows = []
    for prefix, forks in zip(PREFIXES, FORKS, strict=True):
        for token in forks:
            for history in ((*prefix, token), (*prefix, token, 15)):
                ids = torch.tensor([history], device=device) % vocab_size
                rows.append(model(input_ids=ids, use_cache=False).logits[0, -1].float())
    return torch.stack(rows)


def _packed_logits(session: TreeSessionHF, device: torch.device, vocab_size: int) -> Tensor:
    """Two slots, two forks each, then one more token per fork; slot 1 places its nodes out of order."""

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    lengths = [len(prefix) for prefix in PREFIXES]
    ancestry = torch.zeros(2, 2, ENTRIES, dtype=torch.bool, device=device)
    positions = torch.arange(ENTRIES, device=device).repeat(2, 1)
    empty = tensor([])
    session.forward(
        TreeBatch(
            token_ids=tensor([token for prefix in PREFIXES for token in prefix]) % vocab_size,
            positions=tensor([place for length in lengths for place in range(length)]),
            slots=tensor([0] * lengths[0] + [1] * lengths[1]),
            entries=tensor([place for length in lengths for place in range(length)]),
            lanes=empty,
            ancestry=ancestry,
            entry_positions=positions,
            beam_counts=(0, 0),
            prefix_lengths=tuple(lengths),
            outputs=tensor([lengths[0] - 1]),
        )
    )
    for slot, length in enumerate(lengths):
        ancestry[slot, :, :length] = True
    places = [[lengths[0], lengths[0] + 1], [8, 5]]
    logits = []
    for depth, tokens in enumerate([[*FORKS[0], *FORKS[1]], [15] * 4]):
        own = [place + 2 * depth for pair in places for place in pair]
        for index, place in enumerate(own):
            ancestry[index // 2, index % 2, place] = True
            positions[index // 2, place] = lengths[index // 2] + depth
        batch = TreeBatch(
            token_ids=tensor(tokens) % vocab_size,
            positions=tensor([lengths[0] + depth] * 2 + [lengths[1] + depth] * 2),
            slots=tensor([0, 0, 1, 1]),
            entries=tensor(own),
            lanes=tensor([0, 1, 0, 1]),
            ancestry=ancestry,
            entry_positions=positions,
            beam_counts=(2, 2),
            prefix_lengths=(),
            outputs=tensor([0, 1, 2, 3]),
        )
        logits.append(session.forward(batch))
    return torch.stack(logits, 1).flatten(0, 1)
