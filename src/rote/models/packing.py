"""One packed forward made of what the host knows: nodes and chains as arrays.

What is long as the queries is sent to the device together; what is wide as the memory is not copied for that.

The search's own step is not packed here: its tokens, entries and masks lie on the device already.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rote.models.base import TreeBatch
from rote.models.memory import ranges, to_device, together_to_device

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


def pack(
    nodes: Nodes = NO_NODES, chains: Chains = NO_CHAINS, *, device: torch.device, outputs: Ints | None = None
) -> TreeBatch:
    """The nodes, then the chains. `outputs`: places whose next tokens are wanted; every node and the end of every chain
    unless given."""
    slots = np.repeat(np.arange(len(nodes.counts)) if nodes.slots is None else nodes.slots, nodes.counts)
    queries = [nodes.token_ids, nodes.positions, slots, nodes.entries]
    wanted, lengths = np.arange(len(slots)), _NOTHING
    if chains.slots:
        lengths = chains.lengths
        places = ranges(lengths)
        chain_ids = np.array([token for chain in chains.token_ids for token in chain], dtype=np.int64)
        along = (chain_ids, places, np.repeat(np.array(chains.slots, dtype=np.int64), lengths), places)
        wanted = np.concatenate([wanted, len(slots) + np.cumsum(lengths) - 1])
        queries = [np.concatenate(parts) for parts in zip(queries, along, strict=True)]
    token_ids, positions, query_slots, entries, lanes, wanted_there, rows = together_to_device(
        [
            *queries,
            ranges(nodes.counts),
            wanted if outputs is None else outputs,
            _NOTHING if nodes.slots is None else nodes.slots,
        ],
        device,
    )
    return TreeBatch(
        token_ids=token_ids,
        positions=positions,
        slots=query_slots,
        entries=entries,
        lanes=lanes,
        ancestry=to_device(torch.from_numpy(nodes.ancestry), device),
        entry_positions=to_device(torch.from_numpy(nodes.entry_positions), device),
        beam_counts=tuple(nodes.counts.tolist()),
        prefix_lengths=tuple(lengths.tolist()),
        outputs=wanted_there,
        reaches=nodes.reaches,
        columns=None if nodes.columns is None else to_device(torch.from_numpy(nodes.columns), device),
        rows=None if nodes.slots is None else rows,
    )
