"""One packed forward made of what the host knows: nodes and chains as arrays.

Everything is sent to the device together.

The search's own step is not packed here: its tokens, entries and masks lie on the device already.
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
    no_rows = nodes.slots is None
    own = (nodes.ancestry, nodes.entry_positions, _or_nothing(nodes.columns), _or_nothing(nodes.slots))
    row_of = _NOTHING if no_rows else np.repeat(np.arange(len(nodes.counts)), nodes.counts)
    sent = [*queries, ranges(nodes.counts), wanted if outputs is None else outputs, *own, row_of]
    token_ids, positions, query_slots, entries, lanes, wanted_there, ancestry, entry_positions, columns, rows, of = (
        together_to_device(sent, device)
    )
    return TreeBatch(
        token_ids=token_ids,
        positions=positions,
        slots=query_slots,
        entries=entries,
        lanes=lanes,
        ancestry=ancestry,
        entry_positions=entry_positions,
        beam_counts=tuple(nodes.counts.tolist()),
        prefix_lengths=tuple(lengths.tolist()),
        outputs=wanted_there,
        reaches=nodes.reaches,
        columns=None if nodes.columns is None else columns,
        rows=None if no_rows else rows,
        row_of=None if no_rows else of,
    )


def _or_nothing(given: Ints | None) -> Ints:
    return _NOTHING if given is None else given
