"""One stream of windows: its slots, their beams, the tree cache and the model's session.

A step has two halves. `launch` queues everything on the device: the chains of new windows, the packed forward, the next
beams, and a copy of the few numbers the host must know. `settle` waits for that copy, once, and ends what has ended; it
launches the next step as soon as it can. Until then the device waits, so what the next step needs is prepared on the
device before, and what this one said of every window is written down afterwards.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.models.base import TreeSession
from rote.models.memory import Handover, together_to_device
from rote.models.numbers import require_numbers
from rote.models.tree_attention import Seen, live_entries
from rote.policy import Kept
from rote.search import beam, outcome
from rote.search.admission import fresh_state
from rote.search.base import SearchOutcome, SearchTask
from rote.search.cache import TreeCache
from rote.search.chain import copy_states, evaluate_chains
from rote.search.forwards import Forwards
from rote.search.frontier import SearchedStates
from rote.search.known_paths import KnownPaths
from rote.search.record import Banked, FrontierRecord
from rote.search.scheduler import Move, Scheduler, Slot
from rote.search.setup import Setup
from rote.search.shapes import Shape, Shapes
from rote.search.steps import Arrived, Ended, Foreseen, Pending

MOST_UNWRITTEN = 4
"""Steps that may wait to be written down; each holds some megabytes."""


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
        self.forwards = Forwards(setup, self.session, self.cache, self.shapes)
        filler = Slot(SearchTask(0, (0,), (0,) * limits.suffix_tokens))
        self.state = self._fresh([filler] * slots)
        self.frontiers = [self._record()] * slots
        self.reaches = [0] * slots
        self.chain_tokens = [0] * slots
        width = min(setup.children, self.options.max_children or setup.children)
        self.known = KnownPaths(slots, limits.suffix_tokens, width, self.device)
        self.prefix_tokens = torch.zeros(slots, dtype=torch.int64, device=self.device)
        self.foreseen: Foreseen | None = None
        self.pending: Pending | None = None
        self._unwritten: deque[Iterator[Ended]] = deque()

    def launch(self) -> bool:
        """Refill the slots and queue one step; False when no window is left."""
        moves, admitted = self.scheduler.refill()
        if moves:
            self._move(moves)
        if not self.scheduler.active:
            return False
        if admitted:
            self._admit(admitted)
        active = self.scheduler.active
        if moves or admitted:
            self.forwards.forget()
        if moves or admitted or self.foreseen is None or len(self.foreseen.kept.unlisted) != len(active):
            self.foreseen = self._foresee(None)
        counts = [slot.to_evaluate for slot in active]
        kept = self.forwards.fill(self.foreseen, counts, self.reaches[: len(active)])
        finishing = [place for place, slot in enumerate(active) if slot.is_at_last_step]
        finals = Handover(self._finals(finishing, kept) if finishing else ())
        goes_on = len(finishing) < len(active)
        tallies = Handover(self._advance(kept) if goes_on else ())
        self.pending = Pending(finishing, finals, tallies)
        if not finishing:
            self.forwards.guess(self.foreseen, counts, self._most_reaches())
        return True

    def settle(self) -> Iterator[SearchOutcome]:
        """Wait for the step that was launched; the windows that ended by it. The next step is launched before the rest
        of the host's work, if the slots of those windows can be refilled by now and nobody asks for their states."""
        assert self.pending is not None, "settle follows launch"
        finishing, finals, tallies = self.pending
        self.pending = None
        active, frontiers = self.scheduler.active.copy(), self.frontiers.copy()
        arrived = [tensor.numpy() for tensor in tallies.wait()]
        going, stopping = self._count(arrived[0][:, : outcome.COUNTS], finishing) if arrived else ([], [])
        step = Arrived(active, frontiers, finishing, going, stopping, arrived, finals.wait())
        ended = finishing + stopping
        wants_states = any(active[place].task.wants_states for place in ended)
        goes_ahead = not wants_states and len(self.scheduler.queue) >= len(ended)
        failure = self._go_ahead(ended) if goes_ahead else None
        self._unwritten.append(step.written(self.options))
        yield from self._write(keeps_places=not goes_ahead)
        if failure is not None:
            raise failure

    def _count(self, table: NDArray[np.float64], finishing: list[int]) -> tuple[list[int], list[int]]:
        """What the next step must know of every window; the places of those that go on, and of those that stop."""
        *counts, self.reaches[: len(table)] = table.T.astype(np.int64).tolist()
        return self.scheduler.count(*counts, finishing=set(finishing))

    def _write(self, *, keeps_places: bool) -> Iterator[SearchOutcome]:
        """The windows that ended, the first ones first, until the device waits for us: the rest has time while it
        works again. Those of this step may still hold their places."""
        while self._unwritten:
            for place, slot, result in self._unwritten[0]:
                # Logits that are not numbers have made the ledger NaN.
                named = slot.task.name or slot.task.key
                require_numbers(result.unlisted, self.setup.model.dtype, what=f"continuations of window {named}")
                # One at a time: states are large, and whoever takes them may use them before the next.
                complete = replace(result, states=self._states(place, result)) if slot.task.wants_states else result
                if keeps_places and len(self._unwritten) == 1:
                    self.scheduler.retire([place])
                yield complete
                if len(self._unwritten) <= MOST_UNWRITTEN and self._is_waited_for:
                    return
            self._unwritten.popleft()

    @property
    def _is_waited_for(self) -> bool:
        """Whether the device has done the next step already, and waits."""
        return self.device.type == "cuda" and self.pending is not None and self.pending.has_arrived

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

    def _advance(self, kept: Kept) -> tuple[Tensor, ...]:
        """The next beams of every slot; what the host must know of them. Slots at their last step come along."""
        count = len(self.scheduler.active)
        advanced = beam.advance(
            self.state.take(slice(0, count)),
            kept,
            options=self.options,
            viability=self.setup.viability,
            eos_ids=self.setup.eos_ids,
            children=self.setup.children,
        )
        positions = self.prefix_tokens[:count] + advanced.state.step - 1
        is_verbatim = advanced.state.is_verbatim
        reach = self.cache.branch(advanced.parents, advanced.alive, is_verbatim, positions, keeps_all=self._keeping())
        self.state.follow(count, advanced.state)
        self.foreseen = self._foresee(self._live_entries())
        table = outcome.tally(advanced, reach)
        return (table, *Banked.of(advanced)) if self.options.record_frontier else (table,)

    def _keeping(self) -> Tensor | None:
        """Which slots give no entry out again, because somebody will go on from their search; None if all do."""
        keeps_all = np.array([slot.task.wants_states for slot in self.scheduler.active])
        return self._to_device(keeps_all)[0] if keeps_all.any() else None

    def _finals(self, finishing: list[int], kept: Kept) -> outcome.Finals:
        (places,) = self._to_device(np.array(finishing))
        state = self.state.take(places)
        chosen = Kept(kept.token_ids[places], kept.log_probs[places], kept.unlisted[places])
        accepted = beam.accept(state, chosen, options=self.options, viability=self.setup.viability)
        return outcome.gather_finals(state, accepted, self.options)

    def _record(self) -> FrontierRecord:
        return FrontierRecord(self.setup.viability.initial(torch.device("cpu")).numpy())

    def _foresee(self, live: Seen | None) -> Foreseen:
        count, state = len(self.scheduler.active), self.state
        newest = (state.step[:count] - 1).clamp(min=0)
        tokens = state.paths[:count].gather(2, newest[:, None, None].expand(-1, self.options.lanes, 1))[..., 0]
        return Foreseen(self.known.next(state, count), tokens, self.prefix_tokens[:count] + newest, live)

    @property
    def _has_kernel(self) -> bool:
        return self.device.type == "cuda"

    def _live_entries(self) -> Seen | None:
        """What all beams see, listed before it is known how far their entries reach."""
        if not self._has_kernel:
            return None
        count = len(self.scheduler.active)
        rows, lanes, entries = self.shapes.rounded(count, self.options.lanes, max(self._most_reaches()))
        return live_entries(self.cache.ancestry[:rows, :lanes, : min(entries, self.session.entries)], None)

    def _most_reaches(self) -> list[int]:
        """How far the entries of every slot can reach after the step whose end the host does not know yet: none can
        need more than one for each lane beyond those it has."""
        count, lanes = len(self.scheduler.active), self.options.lanes
        held = zip(self.reaches[:count], self.chain_tokens[:count], strict=True)
        return [max(reach, chain) + lanes for reach, chain in held]

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
        self.prefix_tokens[rows] = prefixes
        for place, slot in zip(places, slots, strict=True):
            self.frontiers[place] = self._record()
            self.reaches[place] = self.chain_tokens[place] = slot.task.chain_tokens
        self.forwards.make_room(max(self.reaches[place] for place in places))
        self._evaluate([place for place in places if self.scheduler.active[place].task.chain is None])
        evaluated = [(place, slot.task.chain) for place, slot in zip(places, slots, strict=True) if slot.task.chain]
        copy_states(evaluated, self.session, entries=self.chain_tokens.__getitem__)
        self.known.take_over([(place, chain.kept) for place, chain in evaluated])

    def _evaluate(self, places: list[int]) -> None:
        """Windows that come without a chain: theirs are evaluated here."""
        if not places:
            return
        pairs = [self.scheduler.active[place].task.pair for place in places]
        first = evaluate_chains(self.session, pairs, places, self.options.listing, device=self.device)
        self.setup.counters.forwards += 1
        (rows,) = self._to_device(np.array(places))
        self.known.put(rows, first.kept)

    def _move(self, moves: Sequence[Move]) -> None:
        """All at once. A window that moves on from a place it has just come to goes there from where it was."""
        origins: dict[int, int] = {}
        for source, target in moves:
            origins[target] = origins.pop(source, source)
        places = np.array([[*origins.values()], [*origins]])
        sources, targets = self._to_device(*places)
        self.state.put(targets, self.state.take(sources))
        self.cache.move(sources, targets)
        self.known.move(sources, targets)
        self.prefix_tokens[targets] = self.prefix_tokens[sources]
        for target, source in origins.items():
            self.session.move(source, target, max(self.reaches[source], self.chain_tokens[source]))
            self.frontiers[target] = self.frontiers[source]
            self.reaches[target] = self.reaches[source]
            self.chain_tokens[target] = self.chain_tokens[source]
