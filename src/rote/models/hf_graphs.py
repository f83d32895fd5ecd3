"""Small and repeated forwards, recorded once and replayed: greedy steps, explorations and beams on a GPU.

The host takes tens of milliseconds to ask for all kernels of a forward; where the device needs no longer for it, it
waits. A CUDA graph asks for all of them at once. What differs from step to step lies in buffers that the recorded
kernels read: tokens, positions, where to write, what to see. A forward takes the least recorded size that holds it;
tokens that fill it up see nothing, and write to a place of the memory that nobody reads.

A size is recorded once it has run a few times in the plain way: recording takes as long as two forwards, and most sizes
of a short exploration come once or twice. Whatever cannot be recorded runs in the plain way from then on.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rote.models.base import TreeBatch
from rote.models.hf_attention import Layout
from rote.models.tree_attention import Packing, Seen, live_entries, words_for

FEW = (32, 64, 128, 256, 384, 512)
"""Numbers of tokens that are recorded with a row for each token."""
STEP = 64
"""Larger numbers are rounded up to a multiple of this, and tokens keep the rows of their slots."""
MOST = 4096
PLAIN_RUNS = 3
"""Forwards of a size before it is recorded."""
ALIGNED = 64
"""Rows of what is seen begin at multiples of this, which kernels read faster."""


class Size(NamedTuple):
    """What a recorded forward has room for."""

    tokens: int
    rows: int
    lanes: int


def size_of(batch: TreeBatch) -> Size | None:
    """The size to record for this batch; None when it is of another kind."""
    count, (rows, lanes, _) = len(batch.token_ids), batch.ancestry.shape
    if batch.prefix_lengths or count > MOST:
        return None
    if count <= FEW[-1]:
        tokens = next(tokens for tokens in FEW if count <= tokens)
        return Size(tokens, tokens, 1)
    return Size(-(-count // STEP) * STEP, rows, lanes) if batch.columns is None else None


class RecordedLayout(Layout):
    """A layout of some size whose tensors stay where they are. `entries`: of a slot's memory, the unread one last."""

    def __init__(self, batch: TreeBatch, size: Size, entries: int) -> None:
        device, self.batch = batch.slots.device, batch
        self.size, self.entries, self.beams = size, entries, size.tokens
        self.tokens, self.positions, self._places = (
            torch.zeros(size.tokens, dtype=torch.int64, device=device) for _ in range(3)
        )
        starts, counts, slots, live = (torch.zeros(size.rows, dtype=torch.int64, device=device) for _ in range(4))
        width = -(-entries // ALIGNED) * ALIGNED
        self._seen = Seen(
            torch.zeros(size.rows, width, dtype=torch.int32, device=device),
            live,
            torch.zeros(size.rows, words_for(size.lanes), width, dtype=torch.int32, device=device),
        )
        self.order = torch.arange(size.tokens, device=device)
        self.packing = Packing(starts, counts, slots, size.lanes)
        self._packed: tuple[int, ...] = ()
        """Beams of every slot as `packing` has them; nothing where tokens have rows of their own."""

    def fill(self, layout: Layout) -> None:
        """Take over what a batch says."""
        batch, count = layout.batch, len(layout.batch.token_ids)
        self.tokens[:count].copy_(batch.token_ids)
        self.positions[:count].copy_(batch.positions)
        self._places[:count].copy_(layout.rows(self.entries))
        if self.size.lanes == 1 or batch.rows is not None or batch.beam_counts != self._packed:
            self._places[count:].fill_(self.entries - 1)
            self._pack(_packing_by_token(layout) if self.size.lanes == 1 else layout.packing)
            self._packed = batch.beam_counts if self.size.lanes > 1 and batch.rows is None else ()
        seen = _seen_by_token(layout) if self.size.lanes == 1 else layout.live_entries(None)
        rows, reach = seen.columns.shape
        self._seen.columns[:rows, :reach].copy_(seen.columns)
        self._seen.counts[:rows].copy_(seen.counts)
        self._seen.bits[:rows, : seen.bits.shape[1], :reach].copy_(seen.bits)

    def _pack(self, packing: Packing) -> None:
        for ours, theirs in zip(self.packing[:3], packing[:3], strict=True):
            ours[: len(theirs)].copy_(theirs)
        self.packing.counts[len(packing.counts) :].zero_()

    def rows(self, entries: int) -> Tensor:
        return self._places

    def live_entries(self, window: int | None) -> Seen:
        assert window is None, "sliding windows are not recorded"
        return self._seen


def _seen_by_token(layout: Layout) -> Seen:
    """What every token sees, each in a row of its own."""
    batch, rows = layout.batch, layout.beam_rows
    columns = None if batch.columns is None else batch.columns[rows]
    return live_entries(layout.sees(None)[rows, batch.lanes][:, None], columns)


def _packing_by_token(layout: Layout) -> Packing:
    order = torch.arange(len(layout.batch.token_ids), device=layout.batch.slots.device)
    return Packing(order, torch.ones_like(order), layout.batch.slots, 1)


Evaluate = Callable[[RecordedLayout], Tensor]
"""States of every token of a layout."""


class _Recorded(NamedTuple):
    layout: RecordedLayout
    graph: torch.cuda.CUDAGraph
    states: Tensor


class RecordedSteps:
    """The recorded forwards of one session."""

    def __init__(self) -> None:
        self._ran_plainly: Counter[Size] = Counter()
        self._steps: dict[Size, _Recorded] = {}
        self._pool: Any = None
        self.cannot = False

    def forget(self) -> None:
        """What was recorded reads memory that has moved."""
        self._steps.clear()

    def states(self, layout: Layout, size: Size, entries: int, evaluate: Evaluate) -> Tensor | None:
        """States of the batch's outputs; None where it must run in the plain way. `evaluate` is what is recorded."""
        if self._ran_plainly[size] < PLAIN_RUNS:
            self._ran_plainly[size] += 1
            return None
        if size not in self._steps:
            made = RecordedLayout(layout.batch, size, entries)
            made.fill(layout)
            if not self._record(made, evaluate):
                return None
        recorded = self._steps[size]
        recorded.layout.fill(layout)
        recorded.graph.replay()
        return recorded.states.index_select(0, layout.batch.outputs)

    def _record(self, layout: RecordedLayout, evaluate: Evaluate) -> bool:
        graph = torch.cuda.CUDAGraph()
        try:
            evaluate(layout)  # what it takes to load a kernel cannot be recorded
            with torch.cuda.graph(graph, pool=self._pool):
                states = evaluate(layout)
        except (RuntimeError, AssertionError, NotImplementedError):
            self.cannot = True  # a model that waits for the device in the middle of its forward
            return False
        self._pool = graph.pool()
        self._steps[layout.size] = _Recorded(layout, graph, states)
        return True
