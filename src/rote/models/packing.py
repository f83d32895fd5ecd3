"""One packed forward made of what the host knows: nodes and chains as arrays, sent to the device together.

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
    lengths = chains.lengths
    places = ranges(lengths)
    ends = len(nodes.token_ids) + np.cumsum(lengths) - 1
    node_slots = np.repeat(np.arange(len(nodes.counts)) if nodes.slots is None else nodes.slots, nodes.counts)
    chain_ids = np.array([token for chain in chains.token_ids for token in chain], dtype=np.int64)
    token_ids, positions, slots, entries, lanes, wanted, rows, entry_positions, columns = together_to_device(
        (
            np.concatenate([nodes.token_ids, chain_ids]),
            np.concatenate([nodes.positions, places]),
            np.concatenate([node_slots, np.repeat(np.array(chains.slots, dtype=np.int64), lengths)]),
            np.concatenate([nodes.entries, places]),
            ranges(nodes.counts),
            np.concatenate([np.arange(len(nodes.token_ids)), ends]) if outputs is None else outputs,
            _NOTHING if nodes.slots is None else nodes.slots,
            nodes.entry_positions.ravel(),
            _NOTHING if nodes.columns is None else nodes.columns.ravel(),
        ),
        device,
    )
    shape = nodes.entry_positions.shape
    return TreeBatch(
        token_ids=token_ids,
        positions=positions,
        slots=slots,
        entries=entries,
        lanes=lanes,
        ancestry=to_device(torch.from_numpy(nodes.ancestry), device),
        entry_positions=entry_positions.view(shape),
        beam_counts=tuple(nodes.counts.tolist()),
        prefix_lengths=tuple(lengths.tolist()),
        outputs=wanted,
        reaches=nodes.reaches,
        columns=None if nodes.columns is None else columns.view(shape),
        rows=None if nodes.slots is None else rows,
    )
