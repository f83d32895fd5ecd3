"""Forwards of one token for each of many windows, recorded once and replayed: greedy decoding on a GPU.

Such a forward is so small that the host takes longer to ask for it than the device to do it. A CUDA graph asks for all
of it at once. What differs from step to step lies in buffers that the recorded kernels read: tokens, positions, where
to write, what to see. Rows beyond those of a batch repeat its first one and write the same numbers to the same place.

A number of rows is recorded after it has run once in the plain way, so that every kernel is loaded by then. Whatever
cannot be recorded runs in the plain way from then on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rote.models.base import TreeBatch
from rote.models.hf_attention import Layout
from rote.models.tree_attention import Packing, Seen

ROWS = (32, 64, 128, 192, 256, 320, 384, 448, 512)
"""Numbers of rows that are recorded; a batch takes the least that holds it."""


class RecordedLayout(Layout):
    """A layout of one beam a row whose tensors stay where they are."""

    def __init__(self, batch: TreeBatch, rows: int, entries: int) -> None:
        device, self.beams, self.entries = batch.slots.device, rows, entries
        self.batch = batch
        self.tokens, self.positions, self._places, self._slots = (
            torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(4)
        )
        self._seen = Seen(
            torch.zeros(rows, entries, dtype=torch.int64, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.zeros(rows, 1, entries, dtype=torch.bool, device=device),
        )
        self.order = torch.arange(rows, device=device)
        ones, zeros = torch.ones_like(self.order), torch.zeros_like(self.order)
        self.packing = Packing(self.order, ones, self._slots, zeros, 1)

    def fill(self, layout: Layout) -> None:
        """Take over what a batch says; its first row fills up the rest."""
        batch, seen = layout.batch, layout.live_entries(None)
        reach = seen.columns.shape[1]
        rows = torch.where(self.order < len(batch.token_ids), self.order, 0)
        self.tokens.copy_(batch.token_ids[rows])
        self.positions.copy_(batch.positions[rows])
        self._places.copy_(layout.rows(self.entries)[rows])
        self._slots.copy_(batch.slots[rows])
        self._seen.columns[:, :reach].copy_(seen.columns[rows])
        self._seen.counts.copy_(seen.counts[rows])
        self._seen.sees[:, :, :reach].copy_(seen.sees[rows])

    def rows(self, entries: int) -> Tensor:
        return self._places

    def live_entries(self, window: int | None) -> Seen:
        assert window is None, "sliding windows are not recorded"
        return self._seen


Evaluate = Callable[[RecordedLayout], Tensor]
"""States of every token of a layout."""


class _Recorded(NamedTuple):
    layout: RecordedLayout
    graph: torch.cuda.CUDAGraph
    states: Tensor


class RecordedSteps:
    """The recorded forwards of one session."""

    def __init__(self) -> None:
        self._ran_plainly: set[int] = set()
        self._steps: dict[int, _Recorded] = {}
        self._pool: Any = None
        self._cannot = False

    def forget(self) -> None:
        """What was recorded reads memory that has moved."""
        self._steps.clear()

    def rows_for(self, batch: TreeBatch) -> int | None:
        """The number of rows to replay for this batch; None when it is of another kind."""
        count = len(batch.token_ids)
        is_one_each = batch.beam_counts == (1,) * count and batch.ancestry.shape[:2] == (count, 1)
        if self._cannot or not is_one_each or batch.prefix_lengths or batch.columns is not None:
            return None
        return next((rows for rows in ROWS if count <= rows), None)

    def states(self, layout: Layout, rows: int, entries: int, evaluate: Evaluate) -> Tensor | None:
        """States of the batch's outputs; None where it must run in the plain way. `evaluate` is what is recorded."""
        if rows not in self._ran_plainly:
            self._ran_plainly.add(rows)
            return None
        if rows not in self._steps and not self._record(RecordedLayout(layout.batch, rows, entries), evaluate):
            return None
        recorded = self._steps[rows]
        recorded.layout.fill(layout)
        recorded.graph.replay()
        return recorded.states.index_select(0, layout.batch.outputs)

    def _record(self, layout: RecordedLayout, evaluate: Evaluate) -> bool:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                states = evaluate(layout)
        except (RuntimeError, AssertionError, NotImplementedError):
            self._cannot = True  # a model that waits for the device in the middle of its forward
            return False
        self._pool = graph.pool()
        self._steps[layout.beams] = _Recorded(layout, graph, states)
        return True
