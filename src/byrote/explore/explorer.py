"""Which entries of a slot's memory hold which nodes of its window's tree.

A node that is in memory has all its ancestors there too. When room is needed, everything is forgotten that the nodes to
come do not descend from; who returns to it evaluates it again.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.errors import ConfigError, ModelError
from byrote.explore.ball import Judge, Judged, Standing
from byrote.explore.base import Answer, Explored, ExploreTask, Result
from byrote.explore.tree import ABSENT, Tree
from byrote.models.base import TreeBatch, TreeModel, TreeSession, require_positions
from byrote.models.memory import Handover, grown, ranges
from byrote.models.numbers import require_numbers
from byrote.models.packing import Chains, Nodes, pack
from byrote.policy import Kept, Policy, keep
from byrote.search.base import Limits
from byrote.search.frontier import SearchedStates
from byrote.search.sizing import free_memory, require_memory


class Memory:
    """Entries of all slots. `paths[s, e, :t]`: the entries from the first token down to the node of t tokens at e."""

    def __init__(self, slots: int, entries: int, longest: int) -> None:
        self.entries = entries
        self.paths = np.zeros((slots, entries, longest), dtype=np.int32)
        self._prefix = np.zeros(slots, dtype=np.int64)
        self._free = [np.zeros(0, dtype=np.int64) for _ in range(slots)]
        self._reach = [0] * slots

    def admit(self, slot: int, prefix_tokens: int, tree: Tree, states: SearchedStates | None) -> None:
        """A new window: its prefix takes the first entries, what a search computed those it had there."""
        self._prefix[slot] = prefix_tokens
        tree.entries[: tree.size] = ABSENT
        taken = prefix_tokens if states is None else len(states)
        self._free[slot], self._reach[slot] = np.arange(self.entries - 1, taken - 1, -1), taken
        if states is not None:
            tree.remember(states)
            for group in tree.by_depth(np.arange(1, tree.beams)):
                self._write(slot, tree, group)

    def free(self, slot: int) -> int:
        return len(self._free[slot])

    def reach(self, slot: int) -> int:
        """No entry in use is as high as this."""
        return self._reach[slot]

    def room(self, slot: int) -> int:
        """Nodes that fit beside the prefix."""
        return self.entries - int(self._prefix[slot])

    def place(self, slot: int, tree: Tree, nodes: NDArray[np.int64]) -> None:
        """Give entries to those nodes that have none. Parents are in memory; if not, they come before children."""
        above = tree.entries[tree.parents[nodes]]
        is_flat = int(above.min(initial=0)) != ABSENT
        nodes = nodes[tree.entries[nodes] == ABSENT]
        count = len(self._free[slot]) - len(nodes)
        assert count >= 0, "a piece of a request must fit into the memory"
        given = self._free[slot][count:]
        tree.entries[nodes] = given[::-1]
        self._free[slot] = self._free[slot][:count]
        self._reach[slot] = max(self._reach[slot], int(given.max(initial=-1)) + 1)
        for group in [nodes] if is_flat else tree.by_depth(nodes):
            self._write(slot, tree, group)

    def forget(self, slot: int, tree: Tree, needed: NDArray[np.int64]) -> None:
        """Keep only what `needed` nodes descend from."""
        kept = np.zeros(tree.size, dtype=np.bool_)
        kept[tree.lineage(tree.parents[needed])] = True
        entries = np.where(kept, tree.entries[: tree.size], ABSENT)
        entries[0] = tree.entries[0]
        tree.entries[: tree.size] = entries
        tree.was_forgotten = True
        is_free = np.ones(self.entries, dtype=np.bool_)
        is_free[: self._prefix[slot]] = False
        is_free[entries[entries != ABSENT]] = False
        self._free[slot] = np.flatnonzero(is_free)[::-1]

    def _write(self, slot: int, tree: Tree, nodes: NDArray[np.int64]) -> None:
        """A node's path is its parent's and itself."""
        own, paths = tree.entries[nodes], self.paths[slot]
        paths[own] = paths[tree.entries[tree.parents[nodes]]]
        paths[own, tree.depths[nodes] - 1] = own


ROOT = np.zeros(1, dtype=np.int64)


class Queries(NamedTuple):
    """Nodes of one window to be evaluated, ancestors first, and those of them that were asked for."""

    nodes: NDArray[np.int64]
    wanted: NDArray[np.int64]


class Flight(Generic[Result]):
    """One window in one slot. Requests are met in pieces whose paths fit into the memory."""

    def __init__(self, task: ExploreTask[Result], slot: int, memory: Memory) -> None:
        self.task, self.slot, self._memory = task, slot, memory
        self._is_prefilled = False
        self._todo, self._is_wanted = ROOT[:0], np.zeros(0, dtype=np.bool_)
        self.is_prefix_due = False
        """Whether the next forward must evaluate the prefix: its states are missing, or what follows it is asked."""
        self._result: list[Result] = []

    def start(self) -> bool:
        """Take the first request; whether the window needs the model at all."""
        return self._ask(None) and self.advance()

    @property
    def result(self) -> Result:
        return self._result[0]

    def advance(self) -> bool:
        """Once everything asked is evaluated, hand it over and take the next request. False when the window ended."""
        while not len(self._todo) and not self.is_prefix_due:
            if len(self._waiting):
                self._plan_piece()
            elif not self._ask(self._answer()):
                return False
        return True

    def take(self, count: int) -> Queries:
        """The next nodes to evaluate; each has an entry, and so have its ancestors."""
        todo, is_wanted = self._todo, self._is_wanted
        self._todo, self._is_wanted = todo[count:], is_wanted[count:]
        if len(todo) <= count:
            return Queries(todo, todo if is_wanted.all() else todo[is_wanted])
        return Queries(todo[:count], todo[:count][is_wanted[:count]])

    def standing(self, nodes: NDArray[np.int64]) -> Standing:
        """What the judge must know of these nodes."""
        tree = self.tree
        is_own = tree.has_state[nodes]
        states = tree.states[np.where(is_own, nodes, tree.parents[nodes])]
        return Standing(states, tree.tokens[nodes], tree.depths[nodes], np.full(len(nodes), self.slot), is_own)

    def give(self, nodes: NDArray[np.int64], judged: Judged) -> None:
        """What the model and the judge say of nodes that were asked for."""
        self.tree.states[nodes], self.tree.has_state[nodes] = judged.states, True
        self._given.append((nodes, judged))

    def give_prefix(self, judged: Judged) -> None:
        self._is_prefilled, self.is_prefix_due = True, False
        self.tree.entries[0] = len(self.task.prefix_ids) - 1
        if self._asks_root:
            self.give(ROOT, judged)

    def _ask(self, answer: Answer | None) -> bool:
        try:
            request = next(self.task.exploration) if answer is None else self.task.exploration.send(answer)
        except StopIteration as end:
            self._result.append(end.value)
            return False
        if answer is None:
            self._settle_in(request.tree)
        assert request.tree is self.tree, "an exploration has one tree"
        self._request, self._waiting = request, request.nodes
        self._given: list[tuple[NDArray[np.int64], Judged]] = []
        self._evals, self._asks_root = 0, False
        return True

    def _settle_in(self, tree: Tree) -> None:
        """States that would fill the memory are left out: much of them would have to be forgotten at once."""
        self.tree, self.states = tree, self.task.states
        if self.states is not None and 2 * len(self.states) > self._memory.entries:
            self.states = None
        self._memory.admit(self.slot, len(self.task.prefix_ids), tree, self.states)
        self._is_prefilled = self.states is not None

    def _answer(self) -> Answer:
        """Everything given, in the order in which it was asked for."""
        if not self._given:
            return _nothing()
        if len(self._given) == 1 and self._given[0][0] is self._request.nodes:
            _, token_ids, log_probs, least = self._given[0][1]
            return Answer(token_ids, log_probs, least, self._evals)
        nodes = np.concatenate([nodes for nodes, _ in self._given])
        order = np.argsort(nodes)
        rows = order[np.searchsorted(nodes, self._request.nodes[: len(nodes)], sorter=order)]
        _, token_ids, log_probs, least = map(np.concatenate, zip(*(judged for _, judged in self._given), strict=True))
        return Answer(token_ids[rows], log_probs[rows], least[rows], self._evals)

    def _plan_piece(self) -> None:
        """As many of the waiting nodes as memory and budget allow; none of the others if the budget ends here."""
        nodes = self._waiting
        if self._is_simple(nodes):
            self._waiting = nodes[:0]
            self._set_out(nodes, nodes, np.ones(len(nodes), dtype=np.bool_))
            return
        todo = self._lacking(nodes)
        if int((self.tree.entries[todo] == ABSENT).sum()) > self._memory.free(self.slot):
            fitting = np.cumsum(self.tree.depths[nodes]) <= self._memory.room(self.slot)
            nodes = nodes[: max(1, int(fitting.sum()))]
            self._memory.forget(self.slot, self.tree, nodes)
            todo = self._lacking(nodes)
        count = self._affordable(nodes, len(todo))
        self._waiting = self._waiting[len(nodes) :] if count == len(nodes) else nodes[:0]
        if count == 0:
            return
        if count < len(nodes):
            nodes = nodes[:count]
            todo = self._lacking(nodes)
        self.tree.learn_states(todo)
        self._set_out(nodes, todo, np.isin(todo, nodes))

    def _is_simple(self, nodes: NDArray[np.int64]) -> bool:
        """Whether each node takes one evaluation and an entry that is free: all parents, the root too, are in memory
        and none of the nodes is."""
        tree, most = self.tree, self._request.most_evals
        return (
            len(nodes) <= self._memory.free(self.slot)
            and (most is None or self._evals + len(nodes) <= most)
            and int(tree.entries[tree.parents[nodes]].min()) != ABSENT
            and int(tree.entries[nodes].max()) == ABSENT
        )

    def _set_out(self, nodes: NDArray[np.int64], todo: NDArray[np.int64], is_wanted: NDArray[np.bool_]) -> None:
        """Evaluate `todo`, to know what follows `nodes`."""
        self._evals += self._prefix_evals(nodes) + len(todo)
        self._asks_root = int(nodes.min()) == 0
        self.is_prefix_due = self._asks_root or not self._is_prefilled
        self._memory.place(self.slot, self.tree, todo)
        self._todo, self._is_wanted = todo, is_wanted

    def _lacking(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """What must be evaluated to know these nodes' next tokens: they and ancestors not in memory, by depth."""
        tree, below = self.tree, nodes[nodes > 0]
        above = tree.lineage(below)
        lacking = np.union1d(above[(tree.entries[above] == ABSENT) & (above > 0)], below)
        by_depth: NDArray[np.int64] = lacking[np.argsort(tree.depths[lacking], kind="stable")]
        return by_depth

    def _prefix_evals(self, nodes: NDArray[np.int64]) -> int:
        return len(self.task.prefix_ids) if not self._is_prefilled or int(nodes.min()) == 0 else 0

    def _affordable(self, nodes: NDArray[np.int64], evals: int) -> int:
        """How many leading nodes the rest of the budget buys, if all of them take this many evaluations."""
        most, prefix_evals = self._request.most_evals, self._prefix_evals(nodes)
        if most is None or self._evals + prefix_evals + evals <= most:
            return len(nodes)
        above = self.tree.lineage(nodes)
        costs = (self.tree.entries[above] == ABSENT) & (above > 0)
        (below,) = np.nonzero(nodes > 0)
        costs[below, self.tree.depths[nodes[below]] - 1] = True  # asked for, in memory or not
        rows, _ = np.nonzero(costs)
        _, first = np.unique(above[costs], return_index=True)  # each counts where it is needed first
        spent = np.cumsum(np.bincount(rows[first], minlength=len(nodes))) + self._evals + prefix_evals
        return int((spent <= most).sum())


def _nothing() -> Answer:
    empty = np.zeros((0, 0))
    return Answer(empty.astype(np.int64), empty, empty.astype(np.int16), 0)


ENTRY_STEP = 32
"""Columns are rounded up to this many, so that shapes repeat."""


class Packed(NamedTuple):
    """Query positions of one forward: nodes of `rows`' slots, slot by slot, then prefixes."""

    slots: NDArray[np.int64]  # [rows]: slots that have nodes here
    counts: NDArray[np.int64]  # [rows]: how many
    prefix_tokens: NDArray[np.int64]  # [rows]
    token_ids: NDArray[np.int64]  # [nodes]
    depths: NDArray[np.int64]  # [nodes]
    entries: NDArray[np.int64]  # [nodes]
    wanted: NDArray[np.int64]  # [outputs]: places of the nodes whose next tokens are wanted
    paths: NDArray[np.int32]  # [nodes, longest]: entries from the first token down to the node
    fresh: list[int]
    """Slots whose prefix is evaluated."""
    prefixes: list[tuple[int, ...]]


class Views(NamedTuple):
    """The entries that the nodes of each row look at, and which node looks at which."""

    columns: NDArray[np.int64]  # [rows, columns]
    positions: NDArray[np.int64]  # [rows, columns]
    sees: NDArray[np.bool_]  # [rows, lanes, columns]
    reaches: NDArray[np.int64]  # [rows]


def pack_nodes(nodes: Packed, *, entries: int, device: torch.device) -> TreeBatch:
    """Outputs are the wanted nodes in their order, then what follows each prefix."""
    views = _views(nodes, entries)
    rows = np.repeat(np.arange(len(nodes.counts)), nodes.counts)
    evaluated = Nodes(
        counts=nodes.counts,
        token_ids=nodes.token_ids,
        positions=nodes.prefix_tokens[rows] + nodes.depths - 1,
        entries=nodes.entries,
        ancestry=views.sees,
        entry_positions=views.positions,
        slots=nodes.slots,
        columns=views.columns,
        reaches=tuple(views.reaches.tolist()),
    )
    chains = Chains(nodes.fresh, nodes.prefixes)
    ends = len(rows) + np.cumsum(chains.lengths) - 1
    return pack(evaluated, chains, outputs=np.concatenate([nodes.wanted, ends]), device=device)


def _views(nodes: Packed, entries: int) -> Views:
    """Each row's columns are the prefix and everything its nodes descend from, by entry."""
    rows = np.repeat(np.arange(len(nodes.counts)), nodes.counts)
    steps = np.arange(nodes.paths.shape[1])
    where, step = np.nonzero(steps < nodes.depths[:, None])
    seen, seen_rows = nodes.paths[where, step], rows[where]
    is_used = np.arange(entries) < nodes.prefix_tokens[:, None]
    is_used[seen_rows, seen] = True
    used_rows, used = np.nonzero(is_used)
    reaches = np.bincount(used_rows, minlength=len(nodes.counts))
    ranks = ranges(reaches)
    place = np.zeros(is_used.shape, dtype=np.int64)
    place[used_rows, used] = ranks
    width = -(-max(1, int(reaches.max(initial=0))) // ENTRY_STEP) * ENTRY_STEP
    columns, positions = np.zeros((2, len(nodes.counts), width), dtype=np.int64)
    columns[used_rows, ranks] = used
    # Entries of the prefix are the lowest, so they come first, each at its own position.
    positions[:] = np.arange(width)
    seen_columns = place[seen_rows, seen]
    positions[seen_rows, seen_columns] = nodes.prefix_tokens[seen_rows] + step
    lanes = ranges(nodes.counts)
    sees = np.zeros((len(nodes.counts), max(1, int(nodes.counts.max(initial=0))), width), dtype=np.bool_)
    sees[rows, lanes] = np.arange(width) < nodes.prefix_tokens[rows, None]
    sees[seen_rows, lanes[where], seen_columns] = True
    return Views(columns, positions, sees, reaches)


ENTRIES = 2048
"""Memory entries of a slot beyond its prefix and one path: what a window may have evaluated without forgetting."""
LANES = 128
"""Most nodes of one window in one forward."""
FEW_WINDOWS = 8
"""Windows that a CPU explores at once, and for which a device must have room before entries are made more."""
MOST_WINDOWS = 128
MEMORY_SHARE = 0.5
"""Share of a device's free memory that explorations may take."""
SHARE_AT_THE_END = 0.8
"""The same where nobody else will take any: forwards take the rest."""
FIRST_ENTRIES = 1024
"""Entries a CPU begins with: what the default samples of a window take. Those that are not used cost it nothing."""


class Room(NamedTuple):
    """How many windows to explore at once, and how many evaluated nodes each may remember."""

    slots: int
    entries: int


def choose_room(model: TreeModel, limits: Limits, *, evaluations: int, share: float = MEMORY_SHARE) -> Room:
    """For windows of at most this many evaluations each: none is forgotten, if the device's memory allows it."""
    is_cuda = model.device.type == "cuda"
    fitting = int(free_memory(model.device) * share) // model.tree_bytes_per_entry()
    always = 2 * (limits.prefix_tokens + limits.suffix_tokens)
    entries = max(LANES, min(evaluations, fitting // FEW_WINDOWS - always))
    slots = min(MOST_WINDOWS if is_cuda else FEW_WINDOWS, fitting // (always + entries))
    return Room(max(1, slots), entries)


def taking_turns(device: torch.device, slots: int) -> int:
    """Into how many groups slots are shared out: two on a GPU, so that it computes one while the host thinks about the
    other. A CPU is the host, and gains nothing."""
    return 2 if device.type == "cuda" and slots > 1 else 1


class OutOfSlots(ModelError):
    """The windows in flight are too many for the device's memory."""


class Explorer:
    """Runs explorations of one model under one policy, several windows at a time."""

    def __init__(self, model: TreeModel, policy: Policy, *, slots: int, limits: Limits, entries: int = ENTRIES) -> None:
        policy.check_vocabulary(model.vocab_size)
        if slots < 1:
            raise ConfigError(f"slots are {slots}; at least one window must be explored at a time.")
        require_positions(model, sum(limits))
        self.model, self.policy, self.slots, self.limits = model, policy, slots, limits
        self.entries = 2 * (limits.prefix_tokens + limits.suffix_tokens) + max(entries, LANES)
        require_memory(
            slots * self.entries * model.tree_bytes_per_entry(),
            model.device,
            what=f"exploring {slots:,} windows at once",
            advice="lower slots or leave it out",
        )
        self.forwards = 0
        self._judge: Judge | None = None
        self._session: TreeSession | None = None

    @torch.inference_mode()
    def run(self, tasks: Iterable[ExploreTask[Result]]) -> Iterator[Explored[Result]]:
        """Results in the order in which windows end."""
        waiting, session = iter(tasks), self._opened()
        memory = Memory(self.slots, self.entries, self.limits.suffix_tokens)
        count = taking_turns(self.model.device, self.slots)
        groups: deque[_Group[Result]] = deque(_Group(range(place, self.slots, count)) for place in range(count))
        while True:
            group = groups[0]
            groups.rotate(-1)
            if group.pending is not None:
                group.deliver(self.model)
                yield from group.ended()
            while group.free and (task := next(waiting, None)) is not None:
                flight = Flight(task, group.free[-1], memory)
                if not flight.start():
                    yield Explored(task.key, flight.result)
                    continue
                with self._within_memory():
                    self._admit(group, flight, session, memory)
            if group.active:
                with self._within_memory():
                    group.pending = self._launch(list(group.active.values()), session, memory)
            elif not any(other.active for other in groups):
                return

    def _opened(self) -> TreeSession:
        """The session of all runs. A GPU gets its whole memory at once: growing copies it, and what was recorded of
        forwards would be lost."""
        if self._session is None:
            is_cuda = self.model.device.type == "cuda"
            longest = self.limits.prefix_tokens + self.limits.suffix_tokens
            entries = self.entries if is_cuda else min(self.entries, FIRST_ENTRIES)
            self._session = self.model.open_tree(self.slots, entries, longest=longest)
        return self._session

    def _admit(self, group: "_Group[Result]", flight: Flight[Result], session: TreeSession, memory: Memory) -> None:
        if self._judge is None:
            self._judge = Judge(
                flight.tree.ball, slots=self.slots, longest=self.limits.suffix_tokens, device=self.model.device
            )
        self._judge.admit(flight.slot, flight.tree.ball)
        self._make_room(session, memory.reach(flight.slot))
        if flight.states is not None:
            session.copy_in([flight.slot], flight.states.stored)
        group.active[group.free.pop()] = flight

    def _launch(self, flights: list[Flight[Any]], session: TreeSession, memory: Memory) -> "_Pending":
        """Queue the evaluation of the next nodes of every window, and of the prefixes of those that lack theirs."""
        taken = [(flight, flight.take(LANES)) for flight in flights]
        asking = [(flight, queries) for flight, queries in taken if len(queries.nodes)]
        fresh = [flight for flight in flights if flight.is_prefix_due]
        assert self._judge is not None
        self._make_room(session, max(memory.reach(flight.slot) for flight in flights))
        kept = self._kept(session, _packed(asking, fresh, memory))
        wanted = [(flight, queries.wanted) for flight, queries in asking]
        wanted += [(flight, ROOT) for flight in fresh]
        standing = Standing(*map(np.concatenate, zip(*(f.standing(nodes) for f, nodes in wanted), strict=True)))
        return _Pending(wanted, len(asking), self._judge.judge(standing, kept))

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise OutOfSlots(
                f"{self.slots} windows at once do not fit into the memory of the device; lower slots."
            ) from error

    def _kept(self, session: TreeSession, packed: Packed) -> Kept:
        batch = pack_nodes(packed, entries=session.entries, device=self.model.device)
        self.forwards += 1
        parts = [keep(logits, self.policy) for logits in session.forward_in_chunks(batch)]
        kept = parts[0] if len(parts) == 1 else Kept(*map(torch.cat, zip(*parts, strict=True)))
        return kept

    def _make_room(self, session: TreeSession, entries: int) -> None:
        if session.entries < entries:
            wanted = min(self.entries, grown(session.entries, entries))
            session.grow(-(-wanted // ENTRY_STEP) * ENTRY_STEP)


class _Pending(NamedTuple):
    """A round that was launched: the nodes of each window, those of `asking` first, then prefixes."""

    wanted: list[tuple[Flight[Any], NDArray[np.int64]]]
    asking: int
    judged: Handover


class _Group(Generic[Result]):
    """Windows that are evaluated together."""

    def __init__(self, slots: range) -> None:
        self.free, self.active = list(reversed(slots)), dict[int, Flight[Result]]()
        self.pending: _Pending | None = None

    def deliver(self, model: TreeModel) -> None:
        """Wait for the round that was launched, and tell every window its answers."""
        assert self.pending is not None
        wanted, asking, handover = self.pending
        self.pending = None
        judged = Judged(*(tensor.numpy() for tensor in handover.wait()))
        first = 0
        for place, (flight, nodes) in enumerate(wanted):
            own = judged.rows(first, first + len(nodes))
            # Logits that are not numbers have made every probability of their row NaN.
            name = flight.task.name or flight.task.key
            require_numbers(own.log_probs[:, 0].tolist(), model.dtype, what=f"continuations of window {name}")
            first += len(nodes)
            flight.give(nodes, own) if place < asking else flight.give_prefix(own)

    def ended(self) -> Iterator[Explored[Result]]:
        """The windows that have nothing more to ask; their slots are free."""
        for slot, flight in list(self.active.items()):
            if not flight.advance():
                self.free.append(slot)
                del self.active[slot]
                yield Explored(flight.task.key, flight.result)


def _packed(asking: "list[tuple[Flight[Any], Any]]", fresh: "list[Flight[Any]]", memory: Memory) -> Packed:
    counts = np.array([len(queries.nodes) for _, queries in asking], dtype=np.int64)
    slots = np.array([flight.slot for flight, _ in asking], dtype=np.int64)
    prefix_tokens = np.array([len(flight.task.prefix_ids) for flight, _ in asking], dtype=np.int64)
    token_ids, depths, entries = (
        _joined([getattr(flight.tree, name)[queries.nodes] for flight, queries in asking], np.int64)
        for name in ("tokens", "depths", "entries")
    )
    longest = int(depths.max(initial=1))
    return Packed(
        slots=slots,
        counts=counts,
        prefix_tokens=prefix_tokens,
        token_ids=token_ids,
        depths=depths,
        entries=entries,
        wanted=_wanted([queries for _, queries in asking]),
        paths=memory.paths[np.repeat(slots, counts), entries, :longest],
        fresh=[flight.slot for flight in fresh],
        prefixes=[flight.task.prefix_ids for flight in fresh],
    )


def _wanted(asked: list[Queries]) -> NDArray[np.int64]:
    """Places of the nodes that were asked for among all that are evaluated."""
    if all(queries.wanted is queries.nodes for queries in asked):
        return np.arange(sum(len(queries.nodes) for queries in asked))
    return np.flatnonzero(np.concatenate([np.isin(queries.nodes, queries.wanted) for queries in asked]))


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)
