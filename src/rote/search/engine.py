"""The engine: admit → forward → advance → retire, for many windows at once, each at its own depth.

A beam is a query position. All live beams of all windows, and the prefixes of windows just admitted, go through the
model in one packed forward; nothing is padded, copied or reordered. The host learns one small table per step.
"""

from collections.abc import Iterable, Iterator

import torch

from rote.errors import ConfigError, ModelError, WindowError
from rote.models.base import TreeModel
from rote.search.admission import checked_tasks
from rote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from rote.search.scheduler import Scheduler, TaskQueue
from rote.search.sizing import check_slots, first_entries
from rote.search.stream import Counters, Setup, Stream


class Engine:
    """Searches windows with one model and one set of options; reusable for any number of streams."""

    def __init__(self, model: TreeModel, options: SearchOptions, *, slots: int, limits: Limits) -> None:
        options.policy.check_vocabulary(model.vocab_size)
        if slots < 1:
            raise ConfigError(f"slots are {slots}; at least one window must be searched at a time.")
        longest = limits.prefix_tokens + limits.suffix_tokens
        if model.max_positions is not None and longest > model.max_positions:
            raise WindowError(
                f"prefix + suffix are {longest} tokens, but the model takes at most {model.max_positions}. "
                "Shorten --prefix-tokens or --suffix-tokens."
            )
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

    @torch.inference_mode()
    def run(self, tasks: Iterable[SearchTask]) -> Iterator[SearchOutcome]:
        """Outcomes in the order in which windows end. Memory is bounded by the number of slots."""
        queue = TaskQueue(checked_tasks(tasks, self.limits))
        while True:
            scheduler = Scheduler(queue, self.slots)
            try:
                yield from self._drain(scheduler)
                return
            except torch.OutOfMemoryError as error:
                self._halve(error)
            # Outside the handler: until it ends, the exception holds the tensors of the stream that failed.
            # Nothing of a window in flight is kept: all go back to the queue.
            queue.put_back(scheduler.in_flight)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _drain(self, scheduler: Scheduler) -> Iterator[SearchOutcome]:
        entries = first_entries(self.model, self.options, self.limits, self.slots)
        stream = Stream(self._setup, scheduler, slots=self.slots, first_entries=entries)
        while stream.launch():
            yield from stream.settle()

    def _halve(self, error: Exception) -> None:
        if self.slots == 1:
            raise ModelError(
                "a single window does not fit into the memory of the device; shorten the window."
            ) from error
        self.slots //= 2
