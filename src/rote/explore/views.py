"""Nodes of many windows packed into one forward: arrays in, one batch out."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rote.models.base import TreeBatch
from rote.models.memory import ranges
from rote.models.packing import Chains, Nodes, pack

ENTRY_STEP = 32
"""Columns are rounded up to this many, so that shapes repeat."""


class Packed(NamedTuple):
    """Query positions of one forward: nodes of `rows`' slots, slot by slot, then prefixes."""

    slots: NDArray[np.int64]  # [rows]: slots that have nodes here
    counts: NDArray[np.int64]  # [rows]: how many
    prefix_tokens: NDArray[np.int64]  # [rows]
    token_ids: NDArray[np.int64]  # [nodes]
    depths: NDArray[np.int64]  # [nodes]
    entries: NDArray[np.int64]  # [nodes]
    wanted: NDArray[np.int64]  # [outputs]: places of the nodes whose next tokens are wanted
    paths: NDArray[np.int32]  # [nodes, longest]: entries from the first token down to the node
    fresh: list[int]
    """Slots whose prefix is evaluated."""
    prefixes: list[tuple[int, ...]]


class Views(NamedTuple):
    """The entries that the nodes of each row look at, and which node looks at which."""

    columns: NDArray[np.int64]  # [rows, columns]
    positions: NDArray[np.int64]  # [rows, columns]
    sees: NDArray[np.bool_]  # [rows, lanes, columns]
    reaches: NDArray[np.int64]  # [rows]


def pack_nodes(nodes: Packed, *, entries: int, device: torch.device) -> TreeBatch:
    """Outputs are the wanted nodes in their order, then what follows each prefix."""
    views = _views(nodes, entries)
    rows = np.repeat(np.arange(len(nodes.counts)), nodes.counts)
    evaluated = Nodes(
        counts=nodes.counts,
        token_ids=nodes.token_ids,
        positions=nodes.prefix_tokens[rows] + nodes.depths - 1,
        entries=nodes.entries,
        ancestry=views.sees,
        entry_positions=views.positions,
        slots=nodes.slots,
        columns=views.columns,
        reaches=tuple(views.reaches.tolist()),
    )
    chains = Chains(nodes.fresh, nodes.prefixes)
    ends = len(rows) + np.cumsum(chains.lengths) - 1
    return pack(evaluated, chains, outputs=np.concatenate([nodes.wanted, ends]), device=device)


def _views(nodes: Packed, entries: int) -> Views:
    """Each row's columns are the prefix and everything its nodes descend from, by entry."""
    rows = np.repeat(np.arange(len(nodes.counts)), nodes.counts)
    steps = np.arange(nodes.paths.shape[1])
    where, step = np.nonzero(steps < nodes.depths[:, None])
    seen, seen_rows = nodes.paths[where, step], rows[where]
    is_used = np.arange(entries) < nodes.prefix_tokens[:, None]
    is_used[seen_rows, seen] = True
    used_rows, used = np.nonzero(is_used)
    reaches = np.bincount(used_rows, minlength=len(nodes.counts))
    ranks = ranges(reaches)
    place = np.zeros(is_used.shape, dtype=np.int64)
    place[used_rows, used] = ranks
    width = -(-max(1, int(reaches.max(initial=0))) // ENTRY_STEP) * ENTRY_STEP
    columns, positions = np.zeros((2, len(nodes.counts), width), dtype=np.int64)
    columns[used_rows, ranks] = used
    # Entries of the prefix are the lowest, so they come first, each at its own position.
    positions[:] = np.arange(width)
    seen_columns = place[seen_rows, seen]
    positions[seen_rows, seen_columns] = nodes.prefix_tokens[seen_rows] + step
    lanes = ranges(nodes.counts)
    sees = np.zeros((len(nodes.counts), max(1, int(nodes.counts.max(initial=0))), width), dtype=np.bool_)
    sees[rows, lanes] = np.arange(width) < nodes.prefix_tokens[rows, None]
    sees[seen_rows, lanes[where], seen_columns] = True
    return Views(columns, positions, sees, reaches)
