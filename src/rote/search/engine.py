"""The engine: admit → forward → advance → retire, for many windows at once, each at its own depth.

A beam is a query position. All live beams of all windows, and the prefixes of windows just admitted, go through the
model in one packed forward; nothing is padded, copied or reordered. The host learns one small table per step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import torch

from rote.errors import ConfigError, ModelError
from rote.models.base import TreeModel
from rote.models.positions import require_positions
from rote.search.admission import checked_tasks
from rote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from rote.search.scheduler import Scheduler, TaskQueue
from rote.search.setup import Counters, Setup
from rote.search.sizing import check_slots, first_entries, slots_after_failure
from rote.search.stream import Stream


class Engine:
    """Searches windows with one model and one set of options; reusable for any number of streams."""

    def __init__(self, model: TreeModel, options: SearchOptions, *, slots: int, limits: Limits) -> None:
        options.policy.check_vocabulary(model.vocab_size)
        if slots < 1:
            raise ConfigError(f"slots are {slots}; at least one window must be searched at a time.")
        require_positions(model, sum(limits))
        check_slots(model, options, limits, slots)
        self.model = model
        self.options = options
        self.limits = limits
        self.slots = slots
        self.counters = Counters()
        self._setup = Setup(
            model,
            options,
            limits,
            viability=options.make_viability(),
            eos_ids=torch.tensor(sorted(model.eos_ids), dtype=torch.int64, device=model.device),
            children=options.policy.width(model.vocab_size),
            counters=self.counters,
        )
        self._queue = TaskQueue()
        self._stream: Stream | None = None

    @property
    def waiting(self) -> int:
        """Windows that have no slot yet; their chains must stay where they are until they have one."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        return 0 if self._stream is None else len(self._stream.scheduler.in_flight)

    def put(self, tasks: Iterable[SearchTask]) -> None:
        """More windows to search; each takes a slot as soon as one is free."""
        self._queue.put(checked_tasks(tasks, self.options, self.limits))

    @torch.inference_mode()
    def step(self) -> Iterator[SearchOutcome]:
        """The windows that ended by the forward that was launched last, and the next forward. Out of memory leaves
        fewer slots."""
        try:
            yield from self._step()
            return
        except torch.OutOfMemoryError as error:
            self._require_several(error)
        # Outside the handler: until it ends, the exception holds the tensors of the stream that failed.
        self._give_up()
        self.slots = slots_after_failure(self.model, self.options, self.limits, self.slots)

    def release(self) -> None:
        """Let go of the memory of all slots; the next window opens them again. Nothing may be in flight."""
        assert not self.in_flight, "a window in flight needs its memory"
        self._stream = None

    def run(self, tasks: Iterable[SearchTask]) -> Iterator[SearchOutcome]:
        """Outcomes in the order in which windows end. A window is taken when there is a slot for it, not before."""
        source = iter(tasks)
        while True:
            self.put(islice(source, max(0, self.slots - self.in_flight - self.waiting)))
            if not self.waiting and not self.in_flight:
                return
            yield from self.step()

    def _step(self) -> Iterator[SearchOutcome]:
        if self._stream is None:
            entries = first_entries(self.model, self.options, self.limits, self.slots)
            scheduler = Scheduler(self._queue, self.slots)
            self._stream = Stream(self._setup, scheduler, slots=self.slots, first_entries=entries)
        if self._stream.pending is not None:
            yield from self._stream.settle()
        if self._stream.pending is None:
            self._stream.launch()

    def _give_up(self) -> None:
        """Nothing of a window in flight is kept: all go back to the queue, and their chains may be gone by now."""
        if self._stream is not None:
            self._queue.put_back(replace(task, chain=None) for task in self._stream.scheduler.in_flight)
            self._stream = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _require_several(self, error: Exception) -> None:
        if self.slots == 1:
            raise ModelError(
                "a single window does not fit into the memory of the device; shorten the window."
            ) from error
