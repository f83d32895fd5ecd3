"""The engine: admit → forward → advance → retire, for many windows at once, each at its own depth.

A beam is a query position. All live beams of all windows, and the prefixes of windows just admitted, go through the
model in one packed forward; nothing is padded, copied or reordered. The host learns one small table per step: how
many beams live in each slot, whether its stop rule spoke, and how far the memory in use reaches.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.errors import ConfigError, ModelError, WindowError
from rote.models.base import TreeBatch, TreeModel, TreeSession
from rote.policy import Kept, keep
from rote.search import beam, outcome
from rote.search.admission import checked_tasks, fresh_state
from rote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from rote.search.cache import TreeCache
from rote.search.scheduler import Scheduler, Slot
from rote.search.sizing import first_entries
from rote.types import StopReason

ENTRY_STEP = 32
"""The part of the memory in use is rounded up to this many entries, so that shapes repeat."""
GROWTH = 1.5
"""A session that runs out of entries grows by this factor: growing copies everything, so it must be rare."""


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
        self.model = model
        self.options = options
        self.limits = limits
        self.slots = slots
        self.forwards = 0
        self.peak_entries = 0
        self.session_entries = 0
        self._viability = options.make_viability()
        self._eos_ids = torch.tensor(sorted(model.eos_ids), dtype=torch.int64, device=model.device)
        self._children = options.policy.width(model.vocab_size)

    @torch.inference_mode()
    def run(self, tasks: Iterable[SearchTask]) -> Iterator[SearchOutcome]:
        """Outcomes in the order in which windows end. Memory is bounded by the number of slots."""
        scheduler = Scheduler(checked_tasks(tasks, self.limits), self.slots)
        while True:
            try:
                yield from _Stream(self, scheduler).drain()
                return
            except torch.OutOfMemoryError as error:
                self._halve(scheduler, error)
            # Outside the handler: until it ends, the exception holds the tensors of the stream that failed.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _halve(self, scheduler: Scheduler, error: Exception) -> None:
        """Out of memory: nothing of a window in flight is kept; all go back to the queue and fewer run at once."""
        if self.slots == 1:
            raise ModelError(
                "a single window does not fit into the memory of the device; shorten the window."
            ) from error
        tasks = [slot.task for slot in scheduler.active]
        scheduler.shrink(0)
        self.slots //= 2
        scheduler.capacity = self.slots
        scheduler.requeue(tasks)


class _Stream:
    """Tensors of one pass over a queue: beam state, tree cache and the model's session."""

    def __init__(self, engine: Engine, scheduler: Scheduler) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.options = engine.options
        self.viability = engine._viability
        self.device = engine.model.device
        limits, lanes = engine.limits, engine.options.lanes
        entries = TreeCache.worst_case_entries(limits.prefix_tokens, limits.suffix_tokens, lanes) + lanes
        self.cache = TreeCache(engine.slots, lanes, entries, self.device)
        self.most_entries = entries
        first = first_entries(engine.model, engine.options, limits, engine.slots)
        self.session: TreeSession = engine.model.open_tree(engine.slots, _rounded(first, entries))
        filler = Slot(SearchTask(0, (0,), (0,) * limits.suffix_tokens))
        self.state = self._fresh([filler] * engine.slots)
        self.frontiers: list[outcome.FrontierRecord] = [outcome.FrontierRecord() for _ in range(engine.slots)]
        self.in_use = limits.prefix_tokens

    def drain(self) -> Iterator[SearchOutcome]:
        while True:
            admitted = self.scheduler.admit()
            if admitted:
                self._admit(admitted)
            if not self.scheduler.active:
                return
            yield from self._step(admitted)

    def _step(self, admitted: list[int]) -> Iterator[SearchOutcome]:
        """Forward, then advance every slot; yields the windows that ended."""
        kept = self._forward(admitted)
        active = self.scheduler.active
        ended: dict[int, SearchOutcome] = {}
        finishing = [place for place, slot in enumerate(active) if slot.is_at_last_step]
        if finishing:
            ended |= self._finish(finishing, kept)
        if len(finishing) < len(active):
            ended |= self._advance(kept, set(finishing))
        moves = self.scheduler.retire(ended)
        # Hand over first: a move that runs out of memory must not take finished windows with it.
        yield from ended.values()
        for move in moves:
            self._move(move.source, move.target)

    def _advance(self, kept: Kept, finishing: set[int]) -> dict[int, SearchOutcome]:
        active = self.scheduler.active
        count = len(active)
        advanced = beam.advance(
            self.state.take(slice(0, count)),
            kept,
            options=self.options,
            viability=self.viability,
            eos_ids=self.engine._eos_ids,
            children=self.engine._children,
        )
        if self.options.record_frontier:
            self._record(advanced, count, finishing)
        lengths = torch.tensor([len(slot.task.prefix_ids) for slot in active], device=self.device)
        reach = self.cache.branch(advanced.parents, advanced.alive, lengths + advanced.state.step - 1)
        # The one synchronisation of a step: three small numbers per slot.
        table = torch.stack([advanced.alive.sum(-1), advanced.is_below_threshold.long(), reach]).cpu()
        counts, below, reaches = table.tolist()
        self.state.follow(count, advanced.state)
        self.in_use = max(reaches)
        ended: dict[int, SearchOutcome] = {}
        running: list[int] = []
        for place, slot in enumerate(active):
            if place in finishing:
                continue
            slot.step += 1
            slot.beams = counts[place]
            if slot.beams == 0 or below[place]:
                reason = StopReason.BEAM_EMPTY if slot.beams == 0 else StopReason.BELOW_THRESHOLD
                ended[place] = outcome.stopped(self.state, place, slot, reason, self._options_and_record(place))
            else:
                running.append(place)
        if running:
            self.state.token_evals[running] += torch.tensor([active[p].beams for p in running], device=self.device)
        return ended

    def _finish(self, finishing: list[int], kept: Kept) -> dict[int, SearchOutcome]:
        places = torch.tensor(finishing, device=self.device)
        state = self.state.take(places)
        chosen = Kept(kept.token_ids[places], kept.log_probs[places], kept.unlisted[places])
        accepted = beam.accept(state, chosen, options=self.options, viability=self.viability)
        slots = [self.scheduler.active[place] for place in finishing]
        records = [self._options_and_record(place) for place in finishing]
        return dict(zip(finishing, outcome.finished(state, accepted, slots, records), strict=True))

    def _options_and_record(self, place: int) -> outcome.Context:
        return outcome.Context(self.options, self.frontiers[place])

    def _record(self, advanced: beam.Advance, count: int, finishing: set[int]) -> None:
        before = self.state.take(slice(0, count))
        log_p = advanced.banked.cpu().numpy()
        tokens = advanced.candidates.tokens.cpu().numpy()
        paths = before.paths.cpu().numpy()
        for place in range(count):
            if place in finishing:
                continue
            (where,) = np.nonzero(log_p[place] > -math.inf)
            step = self.scheduler.active[place].step
            parents = where // advanced.candidates.kept
            self.frontiers[place].add(log_p[place, where], paths[place, parents, :step], tokens[place, where])

    def _forward(self, admitted: list[int]) -> Kept:
        """Evaluate live beams and new prefixes; the kept tokens of every lane of every active slot."""
        batch, lanes = self._batch(admitted)
        needed = batch.ancestry.shape[-1]
        if self.session.entries < needed:
            self.session.grow(_rounded(max(needed, int(self.session.entries * GROWTH)), self.most_entries))
        self.engine.peak_entries = max(self.engine.peak_entries, needed)
        self.engine.session_entries = self.session.entries
        logits = self.session.forward(batch)
        self.engine.forwards += 1
        if self.options.suppress_eos:
            logits[:, self.engine._eos_ids] = -math.inf
        listed = keep(logits, self.options.policy, cap=self.options.max_children)
        shape = (len(self.scheduler.active), self.options.lanes)
        where = (batch.slots[batch.outputs], lanes)
        width = listed.token_ids.shape[-1]
        token_ids = torch.zeros(*shape, width, dtype=torch.int64, device=self.device)
        log_probs = torch.full((*shape, width), -math.inf, dtype=torch.float64, device=self.device)
        unlisted = torch.zeros(shape, dtype=torch.float64, device=self.device)
        token_ids[where], log_probs[where], unlisted[where] = listed.token_ids, listed.log_probs, listed.unlisted
        return Kept(token_ids, log_probs, unlisted)

    def _batch(self, admitted: list[int]) -> tuple[TreeBatch, Tensor]:
        """The packed forward of this step, and the lane each of its outputs belongs to."""
        active = self.scheduler.active
        fresh = set(admitted)
        counts = [0 if place in fresh else slot.beams for place, slot in enumerate(active)]
        prefixes = [active[place].task.prefix_ids for place in admitted]
        lengths = [len(prefix) for prefix in prefixes]
        beams = sum(counts)
        # One transfer for all that the host knows.
        slots, lanes, places, ends, prefix_ids, prefix_tokens = self._to_device(
            np.concatenate([np.repeat(np.arange(len(active)), counts), np.repeat(admitted, lengths)]),
            _ranges(counts),
            _ranges(lengths),
            beams + np.cumsum(lengths) - 1,
            np.array([token for prefix in prefixes for token in prefix]),
            np.array([len(slot.task.prefix_ids) for slot in active]),
        )
        beam_slots = slots[:beams]
        depth = self.state.step[beam_slots]
        last = self.state.paths[beam_slots, lanes, (depth - 1).clamp(min=0)]
        reach = _rounded(max([self.in_use, *lengths]), self.cache.ancestry.shape[2])
        batch = TreeBatch(
            token_ids=torch.cat([last, prefix_ids]),
            positions=torch.cat([prefix_tokens[beam_slots] + depth - 1, places]),
            slots=slots,
            entries=torch.cat([self.cache.own_entry[beam_slots, lanes], places]),
            lanes=lanes,
            ancestry=self.cache.ancestry[: len(active), :, :reach],
            entry_positions=self.cache.entry_positions[: len(active), :reach],
            beam_counts=tuple(counts),
            prefix_lengths=tuple(lengths),
            outputs=torch.cat([torch.arange(beams, device=self.device), ends]),
        )
        return batch, torch.cat([lanes, torch.zeros_like(ends)])

    def _to_device(self, *parts: NDArray[Any]) -> tuple[Tensor, ...]:
        packed = torch.from_numpy(np.concatenate(parts).astype(np.int64)).to(self.device, non_blocking=True)
        return torch.split_with_sizes(packed, [len(part) for part in parts])

    def _fresh(self, slots: list[Slot]) -> beam.BeamState:
        return fresh_state(
            slots, options=self.options, viability=self.viability, limits=self.engine.limits, device=self.device
        )

    def _admit(self, places: list[int]) -> None:
        slots = [self.scheduler.active[place] for place in places]
        rows = torch.tensor(places, device=self.device)
        self.state.put(rows, self._fresh(slots))
        lengths = torch.tensor([len(slot.task.prefix_ids) for slot in slots], device=self.device)
        self.cache.admit(rows, lengths)
        for place in places:
            self.frontiers[place] = outcome.FrontierRecord()

    def _move(self, source: int, target: int) -> None:
        self.state.put(slice(target, target + 1), self.state.take(slice(source, source + 1)))
        self.cache.move(source, target)
        self.session.move(source, target)
        self.frontiers[target] = self.frontiers[source]


def _ranges(counts: list[int]) -> NDArray[np.int64]:
    """0 … count − 1 for each count, one after the other."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.arange(sum(counts)) - np.repeat(ends - counts, counts)


def _rounded(entries: int, most: int) -> int:
    return min(most, -(-entries // ENTRY_STEP) * ENTRY_STEP)
