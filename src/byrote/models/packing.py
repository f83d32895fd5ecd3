"""The builder of packed forwards: nodes and chains that the host has as arrays become one `TreeBatch`.

The search's own step is not built here: its tokens, entries and masks are on the device already.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.models.base import TreeBatch
from byrote.models.memory import ranges, together_to_device

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
