"""Faster forwards on a GPU: compiled layers, and small steps recorded as CUDA graphs.

Compiled layers fuse the many small element-wise kernels around the matrix products, which take a third of a step at 7B
shape; compiling takes the first minute. A CPU gains nothing, so layers stay plain there. In forwards of few tokens the
device waits for the host, and a compiled layer takes the host longer than a plain one: they run plain, or recorded.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byrote.errors import ModelError
from byrote.models.base import Seen, TreeBatch
from byrote.models.hf.attention import Layout
from byrote.models.tree_attention import WORD, Packing, live_entries

FEW_TOKENS = 1024
"""Forwards of fewer tokens run plain layers: there the host takes longer than the device."""


def compile_layers(model: Any, *, backend: str = "inductor") -> None:
    """Compile every decoder layer in place, for any number of tokens; tree attention is one operation in it."""
    layers = _layers(model)
    if layers is None:
        raise ModelError(f"compile does not know the layers of {type(model).__name__}. Leave it off.")
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    for module in model.modules():
        if isinstance(number := getattr(module, "layer_idx", None), int):
            # A number that is a tensor is an input of what is compiled; as an integer it would be compiled in.
            module.register_buffer("layer_number", torch.tensor(number), persistent=False)
    for layer in layers:
        layer.compile(dynamic=True, backend=backend)


@contextmanager
def faster_layers(model: Any, tokens: int) -> Iterator[None]:
    """Within this block layers run compiled or plain, whichever is faster for so many tokens."""
    layers = [layer for layer in _layers(model) or () if layer._compiled_call_impl is not None]
    if tokens >= FEW_TOKENS or not layers:
        yield
        return
    compiled = [layer._compiled_call_impl for layer in layers]
    for layer in layers:
        layer._compiled_call_impl = None
    try:
        yield
    finally:
        for layer, implementation in zip(layers, compiled, strict=True):
            layer._compiled_call_impl = implementation


def most_layers_together(model: Any) -> int:
    """Layers on the device that has most of them."""
    places = Counter(weight.device for layer in _layers(model) or () for weight in islice(layer.parameters(), 1))
    return max(places.values(), default=model.config.get_text_config().num_hidden_layers)


def _layers(model: Any) -> Any:
    body = model.get_decoder() if hasattr(model, "get_decoder") else None
    return getattr(body, "layers", None) or getattr(body, "h", None)


COPYING = threading.Lock()
"""Held by a thread that copies from the device, as while weights are hashed: that would spoil a recording."""
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
    """Capacity of a recorded forward."""

    tokens: int
    rows: int
    lanes: int


def size_of(batch: TreeBatch) -> Size | None:
    """The size to record for this batch; None when such batches are not recorded."""
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
            torch.zeros(size.rows, -(-size.lanes // WORD), width, dtype=torch.int32, device=device),
        )
        self.order = torch.arange(size.tokens, device=device)
        self.packing = Packing(starts, counts, slots, size.lanes)

    def fill(self, layout: Layout) -> None:
        """Copy a batch into the recorded tensors."""
        batch, count = layout.batch, len(layout.batch.token_ids)
        self.tokens[:count].copy_(batch.token_ids)
        self.positions[:count].copy_(batch.positions)
        self._places[:count].copy_(layout.rows(self.entries))
        self._places[count:].fill_(self.entries - 1)
        packing, seen = _by_token(layout) if self.size.lanes == 1 else (layout.packing, layout.live_entries(None))
        for ours, theirs in zip(self.packing[:3], packing[:3], strict=True):
            ours[: len(theirs)].copy_(theirs)
        self.packing.counts[len(packing.counts) :].zero_()
        rows, reach = seen.columns.shape
        self._seen.columns[:rows, :reach].copy_(seen.columns)
        self._seen.counts[:rows].copy_(seen.counts)
        self._seen.bits[:rows, : seen.bits.shape[1], :reach].copy_(seen.bits)

    def rows(self, entries: int) -> Tensor:
        return self._places

    def live_entries(self, window: int | None) -> Seen:
        assert window is None, "sliding windows are not recorded"
        return self._seen


def _by_token(layout: Layout) -> tuple[Packing, Seen]:
    """Every token in a row of its own, and what it attends to."""
    batch, rows = layout.batch, layout.beam_rows
    order = torch.arange(len(batch.token_ids), device=batch.slots.device)
    columns = None if batch.columns is None else batch.columns[rows]
    seen = live_entries(layout.sees(None)[rows, batch.lanes][:, None], columns)
    return Packing(order, torch.ones_like(order), batch.slots, 1), seen


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
        self.cannot_record = False

    def forget(self) -> None:
        """Drop recordings whose memory has moved."""
        self._steps.clear()

    def states(self, layout: Layout, size: Size, entries: int, evaluate: Evaluate) -> Tensor | None:
        """States of the batch's outputs; None where it must run without recording. `evaluate` is what is recorded."""
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
            evaluate(layout)  # loads kernels, which cannot be recorded
            with COPYING, torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                states = evaluate(layout)
        except (RuntimeError, AssertionError, NotImplementedError):
            self.cannot_record = True  # a model that waits for the device in the middle of its forward
            return False
        self._pool = graph.pool()
        self._steps[layout.size] = _Recorded(layout, graph, states)
        return True
