"""The builder of packed forwards: nodes and chains that the host has as arrays become one `TreeBatch`.

The search's own step is not built here: its tokens, entries and masks are on the device already.

Here too: copies between host and device that make neither wait for the other. A plain copy makes the host wait until
the device has done everything queued before it.
"""

import math
import mmap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.models.base import TreeBatch

Ints = NDArray[np.int64]


class Nodes(NamedTuple):
    """Single tokens, row by row, each row of another slot, and the entries they attend to."""

    counts: Ints  # [rows]: nodes of each row
    token_ids: Ints  # [nodes]
    positions: Ints  # [nodes]
    entries: Ints  # [nodes]: where each is written
    ancestry: NDArray[np.bool_]  # [rows, lanes, columns]
    entry_positions: Ints  # [rows, columns]
    slots: Ints | None = None  # [rows]; None: row r is of slot r
    columns: Ints | None = None  # [rows, columns]: the entry that each column is about; None: column c is entry c
    reaches: tuple[int, ...] = ()


class TreeNode(NamedTuple):
    """A place of a slot's tree: its whole history, and the entries that hold it."""

    history: tuple[int, ...]
    entries: tuple[int, ...]


class Chains(NamedTuple):
    """Sequences that are evaluated from entry 0 on, each in a slot."""

    slots: Sequence[int]
    token_ids: Sequence[Sequence[int]]

    @property
    def lengths(self) -> Ints:
        return np.array([len(chain) for chain in self.token_ids], dtype=np.int64)


_NOTHING = np.zeros(0, dtype=np.int64)
NO_NODES = Nodes(
    _NOTHING, _NOTHING, _NOTHING, _NOTHING, np.zeros((1, 1, 1), dtype=np.bool_), np.zeros((1, 1), dtype=np.int64)
)
NO_CHAINS = Chains((), ())


def newest_tokens(by_slot: Sequence[Sequence[TreeNode]], entries: int) -> Nodes:
    """The last token of every node; slots have `entries` entries."""
    nodes = [(slot, lane, node) for slot, row in enumerate(by_slot) for lane, node in enumerate(row)]
    ancestry = np.zeros((len(by_slot), max([1, *map(len, by_slot)]), entries), dtype=np.bool_)
    positions = np.zeros((len(by_slot), entries), dtype=np.int64)
    for slot, lane, node in nodes:
        ancestry[slot, lane, list(node.entries)] = True
        positions[slot, list(node.entries)] = np.arange(len(node.entries))
    return Nodes(
        counts=np.array([len(row) for row in by_slot], dtype=np.int64),
        token_ids=np.array([node.history[-1] for *_, node in nodes], dtype=np.int64),
        positions=np.array([len(node.history) - 1 for *_, node in nodes], dtype=np.int64),
        entries=np.array([node.entries[-1] for *_, node in nodes], dtype=np.int64),
        ancestry=ancestry,
        entry_positions=positions,
    )


def pack(
    nodes: Nodes = NO_NODES, chains: Chains = NO_CHAINS, *, device: torch.device, outputs: Ints | None = None
) -> TreeBatch:
    """The nodes, then the chains, sent to the device together. `outputs` are packed positions; by default every node
    and the end of every chain."""
    rows = np.repeat(np.arange(len(nodes.counts)), nodes.counts)  # of each node
    slots = rows if nodes.slots is None else nodes.slots[rows]
    lengths = chains.lengths
    places = ranges(lengths)
    chained = np.array([token for chain in chains.token_ids for token in chain], dtype=np.int64)
    if outputs is None:
        outputs = np.concatenate([np.arange(len(rows)), len(rows) + np.cumsum(lengths) - 1])
    arrays = {
        "token_ids": np.concatenate([nodes.token_ids, chained]),
        "positions": np.concatenate([nodes.positions, places]),
        "slots": np.concatenate([slots, np.repeat(np.array(chains.slots, dtype=np.int64), lengths)]),
        "entries": np.concatenate([nodes.entries, places]),
        "lanes": ranges(nodes.counts),
        "ancestry": nodes.ancestry,
        "entry_positions": nodes.entry_positions,
        "outputs": outputs,
    }
    if nodes.columns is not None:
        arrays["columns"] = nodes.columns
    if nodes.slots is not None:
        arrays |= {"rows": nodes.slots, "row_of": rows}
    tensors = dict(zip(arrays, together_to_device(list(arrays.values()), device), strict=True))
    return TreeBatch(
        **tensors,  # type: ignore[arg-type]
        beam_counts=tuple(nodes.counts.tolist()),
        prefix_lengths=tuple(lengths.tolist()),
        reaches=nodes.reaches,
    )


GROWTH = 1.5
"""A session that runs out of entries grows by this factor."""
WORD = 8
"""Bytes at whose multiples arrays begin that are sent together."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor on the device, queued like any other work there."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def together_to_device(parts: Sequence[NDArray[Any]], device: torch.device) -> tuple[Tensor, ...]:
    """Arrays of any kinds on the device, in one transfer: each costs more than its bytes. A CPU shares their memory."""
    if device.type == "cpu":
        return tuple(map(torch.from_numpy, parts))
    packed, begins = side_by_side(parts, is_pinned=device.type == "cuda")
    return apart(packed.to(device, non_blocking=True), begins, parts)


def side_by_side(parts: Sequence[NDArray[Any]], *, is_pinned: bool) -> tuple[Tensor, list[int]]:
    """The bytes of all arrays, and where those of each begin."""
    ends = np.cumsum([-(-part.nbytes // WORD) * WORD for part in parts])
    packed = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=is_pinned)
    begins, host = [0, *ends[:-1].tolist()], packed.numpy()
    for begin, part in zip(begins, parts, strict=True):
        host[begin : begin + part.nbytes] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    return packed, begins


def apart(packed: Tensor, begins: Sequence[int], parts: Sequence[NDArray[Any]]) -> tuple[Tensor, ...]:
    """The arrays again, of the kinds and shapes of `parts`."""
    return tuple(
        packed[begin : begin + part.nbytes].view(torch.from_numpy(part[:0]).dtype).view(part.shape)
        for begin, part in zip(begins, parts, strict=True)
    )


def ranges(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """0 … count − 1 for each count, one after the other."""
    each = np.asarray(counts, dtype=np.int64)
    return np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)


def grown(held: int, needed: int) -> int:
    """Entries to grow to from those `held`: growing copies everything, so it must be rare."""
    return max(needed, int(held * GROWTH))


def zeros_as_touched(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros of the kind of `like`. On a CPU, pages are allocated at their first use: unused capacity costs nothing."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    pages = mmap.mmap(-1, max(1, math.prod(shape) * like.element_size()))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # Large pages would be zeroed whole for the few rows of each slot that are used.
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype, count=math.prod(shape)).view(shape)


class Handover:
    """Copies to the host that were started; `wait` returns them once they have arrived, whatever was queued later."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        self._tensors = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
        self._arrived: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors):
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def wait(self) -> list[Tensor]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensors
