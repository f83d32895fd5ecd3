"""What an engine lends its stream, and what both count."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from byrote.distance import Viability
from byrote.distance.base import padded_rows
from byrote.errors import ConfigError, ModelError, WindowError
from byrote.models.base import TreeBatch, TreeModel, TreeSession, require_positions
from byrote.models.memory import Handover, grown, ranges, to_device, together_to_device
from byrote.models.numbers import require_numbers
from byrote.models.tree_attention import Seen, live_entries
from byrote.policy import Kept, keep
from byrote.search import beam, outcome
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.beam import BeamState
from byrote.search.frontier import SearchedStates
from byrote.search.outcome import Banked, FrontierRecord
from byrote.search.scheduler import Move, Scheduler, Slot, TaskQueue
from byrote.search.screen_score import rating_table
from byrote.search.sizing import check_slots, first_entries, slots_after_failure
from byrote.search.tree import Shape, Shapes, TreeCache, copy_states, evaluate_chains


@dataclass(slots=True)
class Counters:
    """What an engine did so far, for benches and for whoever asks about memory."""

    forwards: int = 0
    wrong_guesses: int = 0
    """Forwards that nobody had a use for (`byrote.search.engine`)."""
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


def checked_tasks(tasks: Iterable[SearchTask], options: SearchOptions, limits: Limits) -> Iterator[SearchTask]:
    """The tasks as they come, all wanting their states where the options say so; one that does not fit the limits is an
    error that names it."""
    for task in tasks:
        prefix, suffix = len(task.prefix_ids), len(task.suffix_ids)
        if not 1 <= prefix <= limits.prefix_tokens or not 1 <= suffix <= limits.suffix_tokens:
            raise WindowError(
                f"window {task.key} has {prefix} + {suffix} tokens; the engine was opened for at most "
                f"{limits.prefix_tokens} + {limits.suffix_tokens} and needs at least 1 + 1."
            )
        assert task.target_probs is None or len(task.target_probs) == suffix, "one probability per suffix token"
        assert options.record_frontier or not task.wants_states, "states are of use to a frontier only"
        yield replace(task, wants_states=True) if options.keep_states else task


def fresh_state(
    slots: list[Slot], *, options: SearchOptions, viability: Viability, limits: Limits, device: torch.device
) -> BeamState:
    """Every slot holds one beam, the empty continuation."""
    lanes, count = options.lanes, len(slots)
    longest, budget = limits.suffix_tokens, options.edit_budget
    suffixes = [slot.task.suffix_ids for slot in slots]
    log_p = torch.full((count, lanes), -math.inf, dtype=torch.float64)
    log_p[:, 0] = 0.0
    is_verbatim = torch.zeros(count, lanes, dtype=torch.bool)
    is_verbatim[:, 0] = True
    rating = torch.zeros(count, longest + 1 if options.rank_by == "screen_score" else 1, budget + 1).double()
    for row, slot in enumerate(slots):
        if options.rank_by == "screen_score" and slot.task.target_probs is not None:
            table = rating_table(slot.task.target_probs, budget)
            rating[row, : len(table)] = torch.from_numpy(table)
    host = torch.device("cpu")
    fresh = BeamState(
        log_p=log_p,
        edits=viability.initial(host).expand(count, lanes, -1).clone(),
        paths=torch.zeros(count, lanes, longest, dtype=torch.int64),
        least=torch.zeros(count, lanes, dtype=torch.int16),
        is_verbatim=is_verbatim,
        step=torch.zeros(count, dtype=torch.int64),
        length=torch.tensor([len(suffix) for suffix in suffixes]),
        target=padded_rows(suffixes, longest),
        padded=viability.pad(suffixes, longest, host),
        rating=rating,
        bank=torch.zeros(count, budget + 1, dtype=torch.float64),
        unlisted=torch.zeros(count, budget + 1, dtype=torch.float64),
        eos=torch.zeros(count, dtype=torch.float64),
        refuted=torch.zeros(count, dtype=torch.float64),
    )
    return fresh.on(device)


class KnownPaths:
    """One verbatim path a slot. `width`: tokens that are listed after a node."""

    def __init__(self, slots: int, longest: int, width: int, device: torch.device) -> None:
        self._width, self._device, self._longest = width, device, longest
        self.kept = self._nothing(slots, longest)
        """[slots, longest suffix, kept]"""

    def put(self, slots: Tensor, kept: Kept) -> None:
        for known, theirs in zip(self.kept, kept, strict=True):
            known[slots, : theirs.shape[1]] = theirs

    def take_over(self, paths: Sequence[tuple[int, Kept]]) -> None:
        """Paths that others have evaluated, each for its slot: those of one length by a few kernels for all of them."""
        by_length: dict[int, list[tuple[int, Kept]]] = {}
        for slot, kept in paths:
            by_length.setdefault(len(kept.unlisted), []).append((slot, kept))
        for alike in by_length.values():
            slots = to_device(torch.tensor([slot for slot, _ in alike]), self._device)
            self.put(slots, Kept(*map(torch.stack, zip(*(kept for _, kept in alike), strict=True))))

    def move(self, sources: Tensor, targets: Tensor) -> None:
        for known in self.kept:
            known[targets] = known[sources]

    def next(self, state: BeamState, count: int) -> Kept:
        """What is kept after every lane of the first slots as far as it is known: lanes on a verbatim path."""
        is_verbatim, slots = state.is_verbatim[:count], torch.arange(count, device=self._device)
        # A window that has just ended has no next step; whatever is said of it is not asked.
        steps = state.step[:count].clamp(max=self._longest - 1)
        kept = self._nothing(count, is_verbatim.shape[1])
        for ours, known in zip(kept, self.kept, strict=True):
            where = is_verbatim.view(*is_verbatim.shape, *(1,) * (ours.dim() - 2))
            torch.where(where, known[slots, steps][:, None], ours, out=ours)
        return kept

    def _nothing(self, rows: int, columns: int) -> Kept:
        return Kept(
            torch.zeros(rows, columns, self._width, dtype=torch.int64, device=self._device),
            torch.full((rows, columns, self._width), -math.inf, dtype=torch.float64, device=self._device),
            torch.zeros(rows, columns, dtype=torch.float64, device=self._device),
        )


class Foreseen(NamedTuple):
    """What is known of the next step before the host knows of this one, if the same windows take it."""

    kept: Kept
    tokens: Tensor  # [slots, lanes] int64: the newest of every beam
    positions: Tensor  # [slots] int64: where these tokens are in their sequences
    live: Seen | None
    """What all beams see, for the kernel of a GPU."""


class Pending(NamedTuple):
    """A step that was launched: which slots end by it, and what is on its way to the host."""

    finishing: list[int]
    finals: Handover
    tallies: Handover

    @property
    def has_arrived(self) -> bool:
        return self.finals.has_arrived and self.tallies.has_arrived


class Ended(NamedTuple):
    """A window whose search is over, and where it was searched."""

    place: int
    slot: Slot
    outcome: SearchOutcome


@dataclass(frozen=True, slots=True)
class Arrived:
    """The windows as they were when this step was counted: later steps give their places to others."""

    active: list[Slot]
    frontiers: list[FrontierRecord]
    finishing: list[int]
    going: list[int]
    stopping: list[int]
    tallies: list[NDArray[Any]]
    """The table of `outcome.tally` and, where frontiers are recorded, the fields of `Banked`."""
    finals: list[Tensor]

    def written(self, options: SearchOptions) -> Iterator[Ended]:
        """Record the step; the windows that ended by it, one at a time. Nothing here looks at the device."""
        if options.record_frontier and self.tallies:
            self._record()
        for row, place in enumerate(self.finishing):
            slot, finals = self.active[place], outcome.Finals(*self.finals)
            yield Ended(place, slot, outcome.finished(finals, row, slot, options, self.frontiers[place]))
        for place in self.stopping:
            slot = self.active[place]
            yield Ended(place, slot, outcome.stopped(self.tallies, place, slot, options, self.frontiers[place]))

    def _record(self) -> None:
        table, *banked = self.tallies
        beams, has_verbatim = table[:, :2].T.astype(np.int64)
        for place in self.going + self.stopping:
            evaluated = int(beams[place] - has_verbatim[place])
            self.frontiers[place].step(banked, place, beams=int(beams[place]), evaluated=evaluated)


class _Guess(NamedTuple):
    """A forward nobody asked for: the beams it evaluated of every slot, and what the policy keeps after them."""

    counts: list[int]
    listed: Kept

    def of(self, counts: list[int]) -> Kept | None:
        """What is kept after so many beams of the first slots; None where the guess has not evaluated them all."""
        if counts == self.counts:
            return self.listed
        if len(counts) > len(self.counts) or any(map(int.__gt__, counts, self.counts)):
            return None
        first = np.cumsum(self.counts) - self.counts
        rows = np.repeat(first[: len(counts)], counts) + ranges(counts)
        (places,) = together_to_device([rows], self.listed.unlisted.device)
        return Kept(*(tensor[places] for tensor in self.listed))


class Forwards:
    """Evaluates the beams of a stream's first slots."""

    def __init__(self, setup: Setup, session: TreeSession, cache: TreeCache, shapes: Shapes) -> None:
        self._setup, self._session, self._cache, self._shapes = setup, session, cache, shapes
        self._device = setup.model.device
        self._counts, self._beams = list[int](), tuple[Tensor, ...]()
        """Beams of each slot in the last forward; the slots and the lanes of all of them."""
        self._is_steady = False
        """Whether the last two forwards had the same beams."""
        self._guess: _Guess | None = None

    def fill(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> Kept:
        """What the policy keeps after every lane: so many beams of each slot are evaluated, of others it is known."""
        guess, self._guess = self._guess, None
        self._is_steady = counts == self._counts
        if any(counts):
            self.make_room(self._shapes.rounded(len(counts), max(counts), max(reaches)).entries)
            listed = None if guess is None else guess.of(counts)
            if listed is None:
                listed = self._evaluated(foreseen, counts, reaches)
                self._setup.counters.wrong_guesses += guess is not None
            slots, lanes = self._places(counts)
            for ours, theirs in zip(foreseen.kept, listed, strict=True):
                ours[slots, lanes] = theirs
        return foreseen.kept

    def guess(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> None:
        """Evaluate as many beams again, if they are likely to be asked for next. No entry is beyond `reaches`."""
        is_likely = self._is_steady and any(counts)
        if is_likely and self._may_guess and max(reaches) <= self._session.entries:
            self._guess = _Guess(counts, self._evaluated(foreseen, counts, reaches))

    @property
    def _may_guess(self) -> bool:
        """Whether the device would wait for the host, and its session takes lanes that see nothing."""
        return bool(getattr(self._session, "takes_guesses", False))

    def forget(self) -> None:
        """The slots have changed: the next beams are not those that a guess was about."""
        if self._guess is not None:
            self._setup.counters.wrong_guesses += 1
            self._guess = None

    def make_room(self, entries: int) -> None:
        if self._session.entries < entries:
            self._session.grow(self._shapes.rounded_entries(grown(self._session.entries, entries)))
        counters = self._setup.counters
        counters.peak_entries = max(counters.peak_entries, entries)
        counters.session_entries = self._session.entries

    def _evaluated(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> Kept:
        options = self._setup.options
        self._setup.counters.forwards += 1
        logits = self._session.forward(self._batch(foreseen, counts, reaches))
        return keep(logits, options.policy, cap=options.max_children)

    def _batch(self, foreseen: Foreseen, counts: list[int], reaches: Sequence[int]) -> TreeBatch:
        slots, lanes = self._places(counts)
        rows, width, reach = self._shapes.rounded(len(counts), max(counts), max(reaches))
        live = foreseen.live
        return TreeBatch(
            token_ids=foreseen.tokens[slots, lanes],
            positions=foreseen.positions[slots],
            slots=slots,
            entries=self._cache.free_entry[slots, lanes],
            lanes=lanes,
            ancestry=self._cache.ancestry[:rows, :width, :reach],
            entry_positions=self._cache.entry_positions[:rows, :reach],
            beam_counts=tuple(counts),
            reaches=tuple(reaches),
            prefix_lengths=(),
            outputs=torch.arange(len(slots), device=self._device),
            live=live if live is not None and live.columns.shape[1] >= max(reaches) else None,
        )

    def _places(self, counts: list[int]) -> tuple[Tensor, ...]:
        """Slot and lane of every beam."""
        if counts != self._counts:
            self._counts = counts
            every = np.repeat(np.arange(len(counts)), counts), ranges(counts)
            self._beams = together_to_device(every, self._device)
        return self._beams


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
