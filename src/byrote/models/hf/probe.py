"""Whether packed tree forwards of a model give the numbers of plain ones, found out by comparing them once.

The comparison is made on a small forest of histories: chains of one length and of several, forks from the end and from
the middle of a chain, entries out of order and used again. Packed forwards must agree with plain ones, and forwards
whose masks are wrong on purpose must not.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from byrote.models.base import TreeBatch, TreeSession
from byrote.models.hf.head import ChunkedHead
from byrote.models.hf.tree import TreeSessionHF
from byrote.models.packing import Chains, TreeNode, newest_tokens, pack

USUAL_TOKENS = 100
"""Length of the compared histories where the length of the run is not given."""
FEWEST_TOKENS = 8
TOLERANCE = 1e-5
"""Difference that is never too large, as a share of the spread of a row of logits."""
SPREAD = 10
"""How many times as far as plain forwards of different shapes packed ones may be off beyond that in float32."""
NOISE = 3
"""How many times as far as plain forwards packed ones may be from float32 in the run's dtype."""
MIN_EFFECT = 30
"""How many times the limit a wrong mask must move the numbers by, at least where histories are short."""
REFUSALS = (NotImplementedError, TypeError, AttributeError, KeyError, RuntimeError, ValueError, IndexError)
SPARE_ENTRIES = 12
"""Entries beyond the longest history, so that nodes can lie apart."""
PLACES_OF_A_CHAIN = 3


class Probed(NamedTuple):
    """The result of a probe."""

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


def _is_right(head: ChunkedHead, forest: "Forest", session: TreeSessionHF, packed: list[Tensor]) -> bool:
    is_exact = head.model.dtype == torch.float32  # what was packed is in float32 already
    try:
        with widened(head.model):
            exact = forest.plain_logits(head)
            wide = session if is_exact else TreeSessionHF(head, forest.slots, forest.entries)
            found = packed if is_exact else forest.packed_logits(wide)
            if not _is_right_in_float32(head, forest, wide, found, exact=exact):
                return False
    except torch.OutOfMemoryError:
        raise
    except REFUSALS:
        # Weights that are kept elsewhere, or in another form, cannot be widened: the run's dtype must do.
        exact = forest.plain_logits(head)
    largest, limit = _medians(forest, packed, exact).amax(), max(TOLERANCE, torch.finfo(head.model.dtype).eps)
    if largest > limit:
        alone = forest.plain_logits(head, one_by_one=True)
        limit += NOISE * float(_medians(forest, alone, exact).amax())
    return bool(largest <= limit)


def _is_right_in_float32(
    head: ChunkedHead, forest: "Forest", session: TreeSessionHF, packed: list[Tensor], *, exact: list[Tensor]
) -> bool:
    """`session` holds the forest's histories, as `packed` was computed; `exact` are plain. How far plain forwards of
    other shapes are off is looked up only where packed ones are off by more than `TOLERANCE`."""
    largest, limit = torch.cat(_distances(packed, exact)).amax(), TOLERANCE
    if largest > limit:
        alone = forest.plain_logits(head, one_by_one=True)
        limit += SPREAD * float(torch.cat(_distances(alone, exact)).amax())
    if not bool(largest <= limit):
        return False
    for batch in forest.wrong:
        (distances,) = _distances([session.forward(batch)], exact[-1:])
        by_slot = torch.stack([rows.median() for rows in torch.split(distances, forest.steps[-1].per_slot)])
        if not bool(by_slot.amax() >= MIN_EFFECT * limit):
            return False
    return True


def _medians(forest: "Forest", found: list[Tensor], exact: list[Tensor]) -> Tensor:
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


class Step(NamedTuple):
    """One packed forward, and the history behind each of its outputs; those of a slot come together."""

    batch: TreeBatch
    histories: tuple[tuple[int, ...], ...]
    per_slot: list[int]
    """How many outputs each slot has that has any."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Forwards in their order, and versions of the last one whose masks are wrong on purpose."""

    slots: int
    entries: int
    steps: tuple[Step, ...]
    wrong: tuple[TreeBatch, ...]

    def packed_logits(self, session: TreeSession) -> list[Tensor]:
        """By step: [outputs, vocab]."""
        return [session.forward(step.batch) for step in self.steps]

    def plain_logits(self, head: ChunkedHead, *, one_by_one: bool = False) -> list[Tensor]:
        """The same by plain forwards: the long sequences together and the short ones together, each padded at its end
        to the longest beside it, or each by itself."""
        sequences: list[tuple[int, ...]] = []  # as few as begin with every history
        for history in sorted({history for step in self.steps for history in step.histories}, key=len, reverse=True):
            if not any(sequence[: len(history)] == history for sequence in sequences):
                sequences.append(history)
        rows = [torch.tensor(sequence, device=head.model.device) for sequence in sequences]
        long = [row for row in rows if 2 * len(row) > len(rows[0])]
        together = [pad_sequence(part, batch_first=True) for part in (long, rows[len(long) :]) if part]
        batches = [row[None] for row in rows] if one_by_one else together
        states = [
            part
            for batch in batches
            for part in torch.split(
                head.states(torch.arange(batch.numel(), device=batch.device), input_ids=batch), batch.shape[1]
            )
        ]  # by sequence

        def state_after(history: tuple[int, ...]) -> Tensor:
            place = next(place for place, sequence in enumerate(sequences) if sequence[: len(history)] == history)
            return states[place][len(history) - 1]

        return [head.logits(torch.stack(list(map(state_after, step.histories)))) for step in self.steps]


def probing_forest(longest: int, vocab_size: int, device: torch.device) -> Forest:
    """Histories of at most `longest` tokens (at least 8) in slot 0, of a few in slot 1, where every ancestor weighs."""
    entries = longest + SPARE_ENTRIES
    long, other = (_tokens(longest - 2, vocab_size, seed) for seed in (1, 2))
    short = _tokens(3, vocab_size, 3)
    parents = (
        _forks(long, range(longest - 2, entries), vocab_size),
        _forks(short, range(entries)[::-1], vocab_size),
        (),
    )
    nodes = tuple(_grown(row, vocab_size) for row in parents)
    chains = [_step(((), (), ()), held, entries, device) for held in ({0: long, 1: short}, {0: long, 2: other})]
    first, last = (_step(beams, {}, entries, device) for beams in (parents, nodes))
    return Forest(3, entries, (*chains, first, *_variants(last)), _wrong(last.batch, nodes, parents))


def _forks(chain: tuple[int, ...], free: Sequence[int], vocab_size: int) -> tuple[TreeNode, ...]:
    """Two children of the chain's end and one of its middle, in the first free entries."""
    end = TreeNode(chain, tuple(range(len(chain))))
    middle = TreeNode(chain[: len(chain) // 2 + 1], end.entries[: len(chain) // 2 + 1])
    return tuple(
        _child(parent, (5 * place + 4) % vocab_size, free[place]) for place, parent in enumerate((end, end, middle))
    )


def _child(parent: TreeNode, token: int, entry: int) -> TreeNode:
    return TreeNode((*parent.history, token), (*parent.entries, entry))


def _grown(parents: Sequence[TreeNode], vocab_size: int) -> tuple[TreeNode, ...]:
    """Two children of the first and one of the last; the second is dead and its entry is used again."""
    if not parents:
        return ()
    first, dead, last = parents
    step = dead.entries[-1] - first.entries[-1]  # entries are allocated upwards or downwards
    beyond = last.entries[-1] + step
    return (
        _child(first, 7 % vocab_size, dead.entries[-1]),
        _child(first, 11 % vocab_size, beyond + 2 * step),
        _child(last, 13 % vocab_size, beyond),
    )


def _tokens(count: int, vocab_size: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(vocab_size, (count,), generator=generator).tolist())


def _step(
    beams: Sequence[Sequence[TreeNode]], chains: Mapping[int, tuple[int, ...]], entries: int, device: torch.device
) -> Step:
    """The newest token of every node in `beams`, then chains by slot; outputs are all nodes, and places along each
    chain."""
    nodes = [node for row in beams for node in row]
    outputs = list(range(len(nodes)))
    histories = [node.history for node in nodes]
    start = len(nodes)
    for chain in chains.values():
        for place in range(PLACES_OF_A_CHAIN):
            length = len(chain) - place * (len(chain) - 1) // (PLACES_OF_A_CHAIN - 1)
            outputs.append(start + length - 1)
            histories.append(chain[:length])
        start += len(chain)
    batch = pack(
        newest_tokens(beams, entries),
        Chains([*chains], [*chains.values()]),
        outputs=np.array(outputs),
        device=device,
    )
    per_slot = [len(row) for row in beams if row] + [PLACES_OF_A_CHAIN] * len(chains)
    return Step(batch, tuple(histories), per_slot)


def _variants(step: Step) -> tuple[Step, ...]:
    """The same forward with all entries, with the reach of each slot, and with columns for the entries in use only."""
    batch = step.batch
    seen = [torch.nonzero(rows.any(0))[:, 0] for rows in batch.ancestry]
    reaches = tuple(int(entries[-1]) + 1 if len(entries) else 0 for entries in seen)
    columns = pad_sequence([entries.flip(0) for entries in seen], batch_first=True)
    counts = tuple(map(len, seen))
    is_real = (
        torch.arange(columns.shape[1], device=columns.device) < torch.tensor(counts, device=columns.device)[:, None]
    )
    chosen = replace(
        batch,
        ancestry=batch.ancestry.gather(2, columns[:, None].expand(-1, batch.ancestry.shape[1], -1)) & is_real[:, None],
        entry_positions=batch.entry_positions.gather(1, columns),
        columns=columns,
    )
    variants = (batch, replace(batch, reaches=reaches), chosen, replace(chosen, reaches=counts))
    return tuple(step._replace(batch=variant) for variant in variants)


def _wrong(
    batch: TreeBatch, nodes: Sequence[Sequence[TreeNode]], parents: Sequence[Sequence[TreeNode]]
) -> tuple[TreeBatch, ...]:
    """Every node without its parent; and every node with the parents of others as well."""
    without, beside = batch.ancestry.clone(), batch.ancestry.clone()
    for slot, row in enumerate(nodes):
        for lane, node in enumerate(row):
            without[slot, lane, node.entries[-2]] = False
            others = [parent.entries[-1] for parent in parents[slot] if parent.entries[-1] not in node.entries]
            beside[slot, lane, others] = True
    return replace(batch, ancestry=without), replace(batch, ancestry=beside)


@contextmanager
def widened(model: Any) -> Iterator[None]:
    """Within this block `model` computes in float32. Its weights are the same memory again afterwards."""
    if model.dtype == torch.float32:
        yield
        return
    held: dict[torch.Tensor, torch.Tensor] = {}  # parameter or buffer → its memory
    handles = []

    def widen(module: Any, *_: Any) -> None:
        for tensor in _own_tensors(module):
            if tensor not in held and tensor.is_floating_point() and tensor.dtype != torch.float32:
                held[tensor] = tensor.data
                tensor.data = tensor.data.float()

    def restore(module: Any, *_: Any) -> None:
        for tensor in _own_tensors(module):
            if tensor in held:
                tensor.data = held.pop(tensor)

    try:
        for module in model.modules():
            if any(True for _ in _own_tensors(module)):
                handles.append(module.register_forward_pre_hook(widen))
                handles.append(module.register_forward_hook(restore, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for tensor, memory in held.items():
            tensor.data = memory


def _own_tensors(module: Any) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
