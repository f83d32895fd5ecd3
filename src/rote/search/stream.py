"""One stream of windows: its slots, their beams, the tree cache and the model's session.

A step has two halves. `launch` queues everything on the device: new prefixes, the packed forward, the next beams, and
a copy of the few numbers the host must know. `settle` waits for that copy, once, and ends what has ended.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.distance import Viability
from rote.models.base import TreeBatch, TreeModel, TreeSession
from rote.models.memory import Handover, to_device
from rote.policy import Kept, keep
from rote.search import beam, outcome
from rote.search.admission import fresh_state
from rote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from rote.search.cache import TreeCache
from rote.search.frontier import SearchedStates
from rote.search.scheduler import Scheduler, Slot
from rote.search.shapes import Shape, Shapes

GROWTH = 1.5
"""A session that runs out of entries grows by this factor: growing copies everything, so it must be rare."""


@dataclass(slots=True)
class Counters:
    """What an engine did so far, for benches and for whoever asks about memory."""

    forwards: int = 0
    peak_entries: int = 0
    session_entries: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine lends its stream."""

    model: TreeModel
    options: SearchOptions
    limits: Limits
    viability: Viability
    eos_ids: Tensor
    children: int
    """Width of the policy: children a beam can have."""
    counters: Counters = field(default_factory=Counters)


class Pending(NamedTuple):
    """A step that was launched: which slots end by it, and what is on its way to the host."""

    finishing: list[int]
    finals: Handover
    tallies: Handover


class Stream:
    """`first_entries` is the memory each slot starts with; it grows when the beams need more."""

    def __init__(self, setup: Setup, scheduler: Scheduler, *, slots: int, first_entries: int) -> None:
        self.setup = setup
        self.scheduler = scheduler
        self.options = setup.options
        self.device = setup.model.device
        limits, lanes = setup.limits, setup.options.lanes
        most_entries = TreeCache.worst_case_entries(limits.prefix_tokens, limits.suffix_tokens, lanes) + lanes
        self.cache = TreeCache(slots, lanes, most_entries, self.device, keeps_all=setup.options.keep_states)
        self.shapes = Shapes.of(setup.model, Shape(slots, lanes, most_entries))
        self.session: TreeSession = setup.model.open_tree(slots, self.shapes.rounded_entries(first_entries))
        filler = Slot(SearchTask(0, (0,), (0,) * limits.suffix_tokens))
        self.state = self._fresh([filler] * slots)
        self.frontiers = [outcome.FrontierRecord() for _ in range(slots)]
        self.reaches = [0] * slots
        self.pending: Pending | None = None

    def launch(self) -> bool:
        """Refill the slots and queue one step; False when no window is left."""
        moves, admitted = self.scheduler.refill()
        for move in moves:
            self._move(move.source, move.target)
        if not self.scheduler.active:
            return False
        if admitted:
            self._admit(admitted)
        kept = self._forward(admitted)
        active = self.scheduler.active
        finishing = [place for place, slot in enumerate(active) if slot.is_at_last_step]
        finals = Handover(self._finals(finishing, kept) if finishing else ())
        goes_on = len(finishing) < len(active)
        tallies = Handover((self._advance(kept, set(finishing)),) if goes_on else ())
        self.pending = Pending(finishing, finals, tallies)
        return True

    def settle(self) -> Iterator[SearchOutcome]:
        """Wait for the step that was launched; the windows that ended by it."""
        assert self.pending is not None, "settle follows launch"
        finishing, finals, tallies = self.pending
        self.pending = None
        active = self.scheduler.active
        ended: dict[int, SearchOutcome] = {}
        if finishing:
            slots = [active[place] for place in finishing]
            records = [self.frontiers[place] for place in finishing]
            done = outcome.finished(outcome.Finals(*finals.wait()), slots, self.options, records)
            ended |= dict(zip(finishing, done, strict=True))
        for table in tallies.wait():
            ended |= self._read(table, set(finishing))
        self.scheduler.retire(ended)
        for place, result in ended.items():
            # One at a time: states are large, and whoever takes them may use them before the next.
            yield replace(result, states=self._states(place)) if self.options.keep_states else result

    def _states(self, place: int) -> SearchedStates:
        beams = tuple(self.frontiers[place].evaluated)
        prefix_tokens = len(self.scheduler.active[place].task.prefix_ids)
        entries = prefix_tokens + sum(len(paths) for paths in beams)
        return SearchedStates(prefix_tokens, beams, self.session.copy_out(place, entries))

    def _read(self, table: Tensor, finishing: set[int]) -> dict[int, SearchOutcome]:
        ended: dict[int, SearchOutcome] = {}
        for place, (slot, row) in enumerate(zip(self.scheduler.active, table.tolist(), strict=True)):
            counted = outcome.Tally.of(row)
            self.reaches[place] = int(counted.reach)
            if place in finishing:
                continue
            slot.step += 1
            slot.beams = int(counted.beams)
            if slot.beams == 0 or counted.is_below_threshold:
                ended[place] = outcome.stopped(counted, self.state, place, slot, self.options, self.frontiers[place])
            else:
                slot.token_evals += slot.beams
        return ended

    def _advance(self, kept: Kept, finishing: set[int]) -> Tensor:
        """The next beams of every slot; what the host must know of them. Slots at their last step come along."""
        active = self.scheduler.active
        count = len(active)
        advanced = beam.advance(
            self.state.take(slice(0, count)),
            kept,
            options=self.options,
            viability=self.setup.viability,
            eos_ids=self.setup.eos_ids,
            children=self.setup.children,
        )
        if self.options.record_frontier:
            self._record(advanced, count, finishing)
        (lengths,) = self._to_device(np.array([len(slot.task.prefix_ids) for slot in active]))
        reach = self.cache.branch(advanced.parents, advanced.alive, lengths + advanced.state.step - 1)
        self.state.follow(count, advanced.state)
        return outcome.tally(advanced, reach)

    def _finals(self, finishing: list[int], kept: Kept) -> outcome.Finals:
        (places,) = self._to_device(np.array(finishing))
        state = self.state.take(places)
        chosen = Kept(kept.token_ids[places], kept.log_probs[places], kept.unlisted[places])
        accepted = beam.accept(state, chosen, options=self.options, viability=self.setup.viability)
        return outcome.gather_finals(state, accepted, self.options)

    def _record(self, advanced: beam.Advance, count: int, finishing: set[int]) -> None:
        before = self.state.take(slice(0, count))
        log_p = advanced.banked.cpu().numpy()
        tokens = advanced.candidates.tokens.cpu().numpy()
        paths = before.paths.cpu().numpy()
        for place in range(count):
            if place in finishing:
                continue
            (where,) = np.nonzero(log_p[place] > -math.inf)
            slot = self.scheduler.active[place]
            step = slot.step
            if step:
                self.frontiers[place].evaluated.append(paths[place, : slot.beams, :step].copy())
            parents = where // advanced.candidates.kept
            self.frontiers[place].add(log_p[place, where], paths[place, parents, :step], tokens[place, where])

    def _forward(self, admitted: list[int]) -> Kept:
        """Evaluate live beams and new prefixes; the kept tokens of every lane of every active slot."""
        batch, lanes = self._batch(admitted)
        needed = batch.ancestry.shape[-1]
        if self.session.entries < needed:
            self.session.grow(self.shapes.rounded_entries(max(needed, int(self.session.entries * GROWTH))))
        logits = self.session.forward(batch)
        counters = self.setup.counters
        counters.forwards += 1
        counters.peak_entries = max(counters.peak_entries, needed)
        counters.session_entries = self.session.entries
        if self.options.suppress_eos:
            logits[:, self.setup.eos_ids] = -math.inf
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
        reaches = self.reaches[: len(active)]
        rows, width, reach = self.shapes.rounded(len(active), max([1, *counts]), max([*reaches, *lengths]))
        batch = TreeBatch(
            token_ids=torch.cat([last, prefix_ids]),
            positions=torch.cat([prefix_tokens[beam_slots] + depth - 1, places]),
            slots=slots,
            entries=torch.cat([self.cache.own_entry[beam_slots, lanes], places]),
            lanes=lanes,
            ancestry=self.cache.ancestry[:rows, :width, :reach],
            entry_positions=self.cache.entry_positions[:rows, :reach],
            beam_counts=tuple(counts),
            reaches=tuple(reaches),
            prefix_lengths=tuple(lengths),
            outputs=torch.cat([torch.arange(beams, device=self.device), ends]),
        )
        return batch, torch.cat([lanes, torch.zeros_like(ends)])

    def _to_device(self, *parts: NDArray[Any]) -> tuple[Tensor, ...]:
        packed = to_device(torch.from_numpy(np.concatenate(parts).astype(np.int64)), self.device)
        return torch.split_with_sizes(packed, [len(part) for part in parts])

    def _fresh(self, slots: list[Slot]) -> beam.BeamState:
        return fresh_state(
            slots,
            options=self.options,
            viability=self.setup.viability,
            limits=self.setup.limits,
            device=self.device,
        )

    def _admit(self, places: list[int]) -> None:
        slots = [self.scheduler.active[place] for place in places]
        rows, lengths = self._to_device(np.array(places), np.array([len(slot.task.prefix_ids) for slot in slots]))
        self.state.put(rows, self._fresh(slots))
        self.cache.admit(rows, lengths)
        for place, slot in zip(places, slots, strict=True):
            self.frontiers[place] = outcome.FrontierRecord()
            self.reaches[place] = len(slot.task.prefix_ids)

    def _move(self, source: int, target: int) -> None:
        self.state.put(slice(target, target + 1), self.state.take(slice(source, source + 1)))
        self.cache.move(source, target)
        self.session.move(source, target, self.reaches[source])
        self.frontiers[target] = self.frontiers[source]
        self.reaches[target] = self.reaches[source]


def _ranges(counts: list[int]) -> NDArray[np.int64]:
    """0 … count − 1 for each count, one after the other."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.arange(sum(counts)) - np.repeat(ends - counts, counts)
