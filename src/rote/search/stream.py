"""One stream of windows: its slots, their beams, the tree cache and the model's session.

A step has two halves. `launch` queues everything on the device: the chains of new windows, the packed forward, the next
beams, and a copy of the few numbers the host must know. `settle` waits for that copy, once, and ends what has ended; it
launches the next step as soon as it can, so that the device does not wait for what the host writes down.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.models.base import TreeBatch, TreeSession
from rote.models.memory import Handover, grown, ranges, together_to_device
from rote.models.numbers import require_numbers
from rote.policy import Kept, keep
from rote.search import beam, outcome
from rote.search.admission import fresh_state
from rote.search.base import SearchOutcome, SearchTask
from rote.search.cache import TreeCache
from rote.search.chain import evaluate_chains, take_over
from rote.search.frontier import SearchedStates
from rote.search.record import Banked, FrontierRecord, Recording
from rote.search.scheduler import Scheduler, Slot
from rote.search.setup import Setup
from rote.search.shapes import Shape, Shapes


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
        most_entries = TreeCache.worst_case_entries(limits.prefix_tokens, limits.suffix_tokens, lanes)
        self.cache = TreeCache(slots, lanes, most_entries, self.device)
        self.shapes = Shapes.of(setup.model, Shape(slots, lanes, most_entries))
        self.session: TreeSession = setup.model.open_tree(
            slots, self.shapes.rounded_entries(first_entries), longest=limits.prefix_tokens + limits.suffix_tokens
        )
        filler = Slot(SearchTask(0, (0,), (0,) * limits.suffix_tokens))
        self.state = self._fresh([filler] * slots)
        self.frontiers = [self._record()] * slots
        self.reaches = [0] * slots
        self.chain_tokens = [0] * slots
        self.known = self._nothing_kept(slots, limits.suffix_tokens)
        """What the policy keeps after each node of the verbatim path. [slots, longest suffix, kept]"""
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
        kept = self._forward()
        active = self.scheduler.active
        finishing = [place for place, slot in enumerate(active) if slot.is_at_last_step]
        finals = Handover(self._finals(finishing, kept) if finishing else ())
        goes_on = len(finishing) < len(active)
        tallies = Handover(self._advance(kept) if goes_on else ())
        self.pending = Pending(finishing, finals, tallies)
        return True

    def settle(self) -> Iterator[SearchOutcome]:
        """Wait for the step that was launched; the windows that ended by it. The next step is launched before the rest
        of the host's work, if the slots of those windows can be refilled by now and nobody asks for their states."""
        assert self.pending is not None, "settle follows launch"
        finishing, finals, tallies = self.pending
        self.pending = None
        slots = [self.scheduler.active[place] for place in finishing]
        records = [self.frontiers[place] for place in finishing]
        stopped, going = self._read(set(finishing), *arrived) if (arrived := tallies.wait()) else ([], [])
        arrived_finals = finals.wait()
        ended = [*finishing, *(place for place, _, _ in stopped)]
        is_needed = any(self.scheduler.active[place].task.wants_states for place in ended)
        goes_ahead = not is_needed and len(self.scheduler.queue) >= len(ended)
        failure = self._go_ahead(ended) if goes_ahead else None
        for record in going:
            record.write()
        done = outcome.finished(outcome.Finals(*arrived_finals), slots, self.options, records) if finishing else []
        for place, slot, result in [*zip(finishing, slots, done, strict=True), *stopped]:
            # Logits that are not numbers have made the ledger NaN.
            named = slot.task.name or slot.task.key
            require_numbers(result.unlisted, self.setup.model.dtype, what=f"continuations of window {named}")
            # One at a time: states are large, and whoever takes them may use them before the next.
            complete = replace(result, states=self._states(place, result)) if slot.task.wants_states else result
            if not goes_ahead:
                self.scheduler.retire([place])
            yield complete
        if failure is not None:
            raise failure

    def _go_ahead(self, ended: list[int]) -> torch.OutOfMemoryError | None:
        """Launch the next step; what these slots held is not needed any more. A failure must wait for their results."""
        self.scheduler.retire(ended)
        try:
            self.launch()
        except torch.OutOfMemoryError as error:
            return error
        return None

    def _states(self, place: int, result: SearchOutcome) -> SearchedStates:
        slot, frontier = self.scheduler.active[place], result.frontier
        assert frontier is not None
        task = slot.task
        entries = self.frontiers[place].entries(prefix_tokens=len(task.prefix_ids), chain_tokens=task.chain_tokens)
        stored = self.session.copy_out([place], max(task.chain_tokens, int(entries.max()) + 1))
        return SearchedStates(frontier.beams, entries, stored)

    def _read(
        self, finishing: set[int], table: Tensor, *banked: Tensor
    ) -> tuple[list[tuple[int, Slot, SearchOutcome]], list[Recording]]:
        """The windows that stopped, and what is still to be recorded of those that go on."""
        stopped: list[tuple[int, Slot, SearchOutcome]] = []
        going: list[Recording] = []
        recorded = [tensor.numpy() for tensor in banked]
        for place, (slot, row) in enumerate(zip(self.scheduler.active, table.tolist(), strict=True)):
            counted = outcome.Tally.of(row)
            self.reaches[place] = int(counted.reach)
            if place in finishing:
                continue
            slot.step += 1
            slot.beams, slot.has_verbatim = int(counted.beams), bool(counted.has_verbatim)
            record = Recording(self.frontiers[place], place, recorded, slot.beams, slot.to_evaluate)
            if slot.beams == 0 or counted.is_below_threshold:
                record.write()
                result = outcome.stopped(counted, self.state, place, slot, self.options, self.frontiers[place])
                stopped.append((place, slot, result))
            else:
                going.append(record)
                slot.beams_alive += slot.beams
                slot.token_evals += slot.to_evaluate
        return stopped, going

    def _advance(self, kept: Kept) -> tuple[Tensor, ...]:
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
        keeps_all = np.array([slot.task.wants_states for slot in active])
        lengths, keeps = self._to_device(np.array([len(slot.task.prefix_ids) for slot in active]), keeps_all)
        positions = lengths + advanced.state.step - 1
        asked = keeps if keeps_all.any() else None
        is_verbatim = advanced.state.is_verbatim
        reach = self.cache.branch(advanced.parents, advanced.alive, is_verbatim, positions, keeps_all=asked)
        self.state.follow(count, advanced.state)
        table = outcome.tally(advanced, reach)
        return (table, *Banked.of(advanced)) if self.options.record_frontier else (table,)

    def _finals(self, finishing: list[int], kept: Kept) -> outcome.Finals:
        (places,) = self._to_device(np.array(finishing))
        state = self.state.take(places)
        chosen = Kept(kept.token_ids[places], kept.log_probs[places], kept.unlisted[places])
        accepted = beam.accept(state, chosen, options=self.options, viability=self.setup.viability)
        return outcome.gather_finals(state, accepted, self.options)

    def _record(self) -> FrontierRecord:
        return FrontierRecord(self.setup.viability.initial(torch.device("cpu")).numpy())

    def _forward(self) -> Kept:
        """The kept tokens of every lane of every active slot: live beams are evaluated, verbatim paths are known."""
        active = self.scheduler.active
        kept = self._nothing_kept(len(active), self.options.lanes)
        if any(slot.has_verbatim for slot in active):
            self._fill_in_verbatim(kept)
        if any(slot.to_evaluate for slot in active):
            batch = self._batch()
            self._make_room(batch.ancestry.shape[-1])
            listed = keep(self.session.forward(batch), self.options.policy, cap=self.options.max_children)
            self.setup.counters.forwards += 1
            for ours, theirs in zip(kept, listed, strict=True):
                ours[batch.slots, batch.lanes] = theirs
        return kept

    def _nothing_kept(self, rows: int, columns: int) -> Kept:
        width = min(self.setup.children, self.options.max_children or self.setup.children)
        return Kept(
            torch.zeros(rows, columns, width, dtype=torch.int64, device=self.device),
            torch.full((rows, columns, width), -math.inf, dtype=torch.float64, device=self.device),
            torch.zeros(rows, columns, dtype=torch.float64, device=self.device),
        )

    def _fill_in_verbatim(self, kept: Kept) -> None:
        """Verbatim lanes take their next tokens from the chain."""
        count = len(self.scheduler.active)
        is_verbatim, slots = self.state.is_verbatim[:count], torch.arange(count, device=self.device)
        for ours, known in zip(kept, self.known, strict=True):
            said = known[slots, self.state.step[:count]]  # [slots, …]
            where = is_verbatim.view(*is_verbatim.shape, *(1,) * (ours.dim() - 2))
            torch.where(where, said[:, None], ours, out=ours)

    def _make_room(self, entries: int) -> None:
        if self.session.entries < entries:
            self.session.grow(self.shapes.rounded_entries(grown(self.session.entries, entries)))
        counters = self.setup.counters
        counters.peak_entries = max(counters.peak_entries, entries)
        counters.session_entries = self.session.entries

    def _batch(self) -> TreeBatch:
        """The packed forward of this step."""
        active = self.scheduler.active
        counts = [slot.to_evaluate for slot in active]
        slots, lanes, prefix_tokens = self._to_device(
            np.repeat(np.arange(len(active)), counts),
            ranges(counts),
            np.array([len(slot.task.prefix_ids) for slot in active]),
        )
        depth = self.state.step[slots]
        reaches = self.reaches[: len(active)]
        rows, width, reach = self.shapes.rounded(len(active), max(counts), max(reaches))
        return TreeBatch(
            token_ids=self.state.paths[slots, lanes, depth - 1],
            positions=prefix_tokens[slots] + depth - 1,
            slots=slots,
            entries=self.cache.own_entry[slots, lanes],
            lanes=lanes,
            ancestry=self.cache.ancestry[:rows, :width, :reach],
            entry_positions=self.cache.entry_positions[:rows, :reach],
            beam_counts=tuple(counts),
            reaches=tuple(reaches),
            prefix_lengths=(),
            outputs=torch.arange(len(slots), device=self.device),
        )

    def _to_device(self, *parts: NDArray[Any]) -> tuple[Tensor, ...]:
        return together_to_device([part.astype(np.int64, copy=False) for part in parts], self.device)

    def _fresh(self, slots: list[Slot]) -> beam.BeamState:
        return fresh_state(
            slots, options=self.options, viability=self.setup.viability, limits=self.setup.limits, device=self.device
        )

    def _admit(self, places: list[int]) -> None:
        slots = [self.scheduler.active[place] for place in places]
        rows, prefixes, chains = self._to_device(
            np.array(places),
            np.array([len(slot.task.prefix_ids) for slot in slots]),
            np.array([slot.task.chain_tokens for slot in slots]),
        )
        self.state.put(rows, self._fresh(slots))
        self.cache.admit(rows, prefixes, chains)
        for place, slot in zip(places, slots, strict=True):
            self.frontiers[place] = self._record()
            self.reaches[place] = self.chain_tokens[place] = slot.task.chain_tokens
        self._make_room(max(self.reaches[place] for place in places))
        self._evaluate([place for place in places if self.scheduler.active[place].task.chain is None])
        evaluated = [(place, slot.task.chain) for place, slot in zip(places, slots, strict=True) if slot.task.chain]
        take_over(evaluated, self.session, self.known, entries=lambda place: self.chain_tokens[place])

    def _evaluate(self, places: list[int]) -> None:
        """Windows that come without a chain: theirs are evaluated here."""
        if not places:
            return
        pairs = [self.scheduler.active[place].task.pair for place in places]
        first = evaluate_chains(self.session, pairs, places, self.options.listing, device=self.device)
        self.setup.counters.forwards += 1
        (rows,) = self._to_device(np.array(places))
        for known, kept in zip(self.known, first.kept, strict=True):
            known[rows, : kept.shape[1]] = kept

    def _move(self, source: int, target: int) -> None:
        self.state.put(slice(target, target + 1), self.state.take(slice(source, source + 1)))
        self.cache.move(source, target)
        self.session.move(source, target, max(self.reaches[source], self.chain_tokens[source]))
        for known in self.known:
            known[target] = known[source]
        self.frontiers[target] = self.frontiers[source]
        self.reaches[target] = self.reaches[source]
        self.chain_tokens[target] = self.chain_tokens[source]
