"""The explorer: runs the explorations of several windows, and evaluates their nodes in one packed forward per round.

A slot's memory holds nodes of its window's tree by entry; a node in memory has all its ancestors there too. A request
is met in pieces whose paths fit. When a piece needs more entries than are free, everything is dropped that its nodes do
not descend from, and evaluated again when it is needed again. A forward reads only the entries that its nodes descend
from, so a large memory costs no time. Nodes, paths and answers are arrays: nothing is done node by node.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from byrote.errors import ModelError
from byrote.explore.ball import Expanded, Expander, NodeStates
from byrote.explore.base import ExploreTask, NodeAnswer, Result
from byrote.explore.tree import ABSENT, Tree
from byrote.models.base import TreeBatch, TreeModel, TreeSession, require_positions
from byrote.models.packing import Chains, Nodes, grown, pack, ranges
from byrote.models.scoring import require_numbers
from byrote.policy import Kept, Policy, keep
from byrote.search.base import Limits
from byrote.search.frontier import SearchedStates
from byrote.search.sizing import free_memory, require_memory

ENTRIES = 2048
"""Memory entries of a slot beyond its prefix and one path."""
LANES = 128
"""Most nodes of one window in one forward."""
FEW_WINDOWS = 8
"""Windows that a CPU explores at once, and that a device must hold before each gets more entries."""
MOST_WINDOWS = 128
MEMORY_SHARE = 0.5
"""Share of a device's free memory that explorations may take."""
FIRST_ENTRIES = 1024
"""Entries a CPU begins with: what the default samples of a window take. Unused ones cost nothing."""
ENTRY_STEP = 32
"""Columns are rounded up to this many, so that shapes repeat."""
ROOT = np.zeros(1, dtype=np.int64)


class Capacity(NamedTuple):
    """How many windows to explore at once, and how many evaluated nodes to hold for each."""

    slots: int
    entries: int


def choose_capacity(model: TreeModel, limits: Limits, *, evaluations: int) -> Capacity:
    """For windows of at most this many evaluations each: none is evaluated twice, if the device's memory allows it."""
    is_cuda = model.device.type == "cuda"
    fitting = int(free_memory(model.device) * MEMORY_SHARE) // model.tree_bytes_per_entry()
    always = 2 * sum(limits)
    entries = max(LANES, min(evaluations, fitting // FEW_WINDOWS - always))
    slots = min(MOST_WINDOWS if is_cuda else FEW_WINDOWS, fitting // (always + entries))
    return Capacity(max(1, slots), entries)


class OutOfSlots(ModelError):
    """The windows in flight are too many for the device's memory."""


class Explorer:
    """Runs explorations of one model under one policy, several windows at a time."""

    def __init__(self, model: TreeModel, policy: Policy, *, slots: int, limits: Limits, entries: int = ENTRIES) -> None:
        policy.check_vocabulary(model.vocab_size)
        require_positions(model, sum(limits))
        self.model, self.policy, self.slots, self.limits = model, policy, slots, limits
        self.entries = 2 * sum(limits) + max(entries, LANES)
        require_memory(
            slots * self.entries * model.tree_bytes_per_entry(),
            model.device,
            what=f"exploring {slots:,} windows at once",
            advice="lower slots or leave it out",
        )
        self.forwards = 0
        self._expander: Expander | None = None
        self._session: TreeSession | None = None

    @torch.inference_mode()
    def run(self, tasks: Iterable[ExploreTask[Result]]) -> Iterator[tuple[int, Result]]:
        """Keys and results in the order in which windows end."""
        queued = iter(tasks)
        paths = np.zeros((self.slots, self.entries, self.limits.suffix_tokens), dtype=np.int32)
        free, active = list(reversed(range(self.slots))), dict[int, _Flight[Result]]()
        while True:
            while free and (task := next(queued, None)) is not None:
                flight = _Flight(task, free[-1], paths[free[-1]])
                if not flight.advance():
                    yield task.key, flight.result
                    continue
                self._admit(flight)
                active[free.pop()] = flight
            if not active:
                return
            self._evaluate(list(active.values()), paths)
            for slot, flight in list(active.items()):
                if not flight.advance():
                    free.append(slot)
                    del active[slot]
                    yield flight.task.key, flight.result

    def _admit(self, flight: "_Flight[Any]") -> None:
        ball = flight.tree.ball
        with self._within_memory():
            if self._expander is None:
                longest = self.limits.suffix_tokens
                self._expander = Expander(ball, slots=self.slots, longest=longest, device=self.model.device)
            self._expander.admit(flight.slot, ball)
            session = self._reserve(flight.memory.reach)
            if flight.states is not None:
                session.copy_in([flight.slot], flight.states.stored)

    def _evaluate(self, flights: "list[_Flight[Any]]", paths: NDArray[np.int32]) -> None:
        """The next nodes of every window, and the prefixes that are due; each window receives its answers."""
        pieces = [(flight, *flight.take(LANES)) for flight in flights]
        pieces = [(flight, nodes, is_wanted) for flight, nodes, is_wanted in pieces if len(nodes)]
        fresh = [flight for flight in flights if flight.is_prefix_due]
        outputs = [(flight, nodes[is_wanted]) for flight, nodes, is_wanted in pieces]
        outputs += [(flight, ROOT) for flight in fresh]
        states = [flight.node_states(nodes) for flight, nodes in outputs]
        assert self._expander is not None
        with self._within_memory():
            session = self._reserve(max(flight.memory.reach for flight in flights))
            batch = _pack(pieces, fresh, paths, entries=session.entries, device=self.model.device)
            self.forwards += 1
            parts = [keep(logits, self.policy) for logits in session.forward_in_chunks(batch)]
            kept = Kept(*map(torch.cat, zip(*parts, strict=True)))
            handover = self._expander.expand(NodeStates(*map(np.concatenate, zip(*states, strict=True))), kept)
        arrays = [tensor.numpy() for tensor in handover.wait()]
        first = 0
        for number, (flight, nodes) in enumerate(outputs):
            expanded = Expanded(*(array[first : first + len(nodes)] for array in arrays))
            first += len(nodes)
            # Logits that are not numbers have made every probability of their row NaN.
            name = flight.task.name or flight.task.key
            require_numbers(expanded.log_probs[:, 0].tolist(), self.model.dtype, what=f"continuations of window {name}")
            flight.receive(nodes, expanded) if number < len(pieces) else flight.receive_prefix(expanded)

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise OutOfSlots(
                f"{self.slots} windows at once do not fit into the memory of the device; lower slots."
            ) from error

    def _reserve(self, entries: int) -> TreeSession:
        """The session of all runs, with so many entries. A GPU gets its whole memory at once: growing copies it, and
        recorded forwards would be lost."""
        if self._session is None:
            first = self.entries if self.model.device.type == "cuda" else min(self.entries, FIRST_ENTRIES)
            self._session = self.model.open_tree(self.slots, first, longest=sum(self.limits))
        if self._session.entries < entries:
            wanted = min(self.entries, grown(self._session.entries, entries))
            self._session.grow(-(-wanted // ENTRY_STEP) * ENTRY_STEP)
        return self._session


class _Flight(Generic[Result]):
    """A window in a slot: the current request of its exploration, and what is left to evaluate for it."""

    tree: Tree
    memory: "_NodeMemory"
    result: Result

    def __init__(self, task: ExploreTask[Result], slot: int, paths: NDArray[np.int32]) -> None:
        self.task, self.slot, self._paths = task, slot, paths
        self.states = task.states
        self.is_prefix_due = False
        """Whether the next forward must evaluate the prefix: its states are missing, or its next tokens requested."""
        self._is_prefilled = self._includes_root = False
        self._has_begun = False
        self._waiting = self._todo = ROOT[:0]
        self._is_wanted = np.zeros(0, dtype=np.bool_)
        self._received: list[tuple[NDArray[np.int64], Expanded]] = []
        self._evals = 0

    def advance(self) -> bool:
        """Once everything requested is evaluated, answer it and take the next request. False when the window ended."""
        while not len(self._todo) and not self.is_prefix_due:
            if len(self._waiting):
                self._plan_piece()
            elif not self._next_request():
                return False
        return True

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The next nodes to evaluate, ancestors first, and which of them were requested. All of them have entries."""
        nodes, is_wanted = self._todo[:count], self._is_wanted[:count]
        self._todo, self._is_wanted = self._todo[count:], self._is_wanted[count:]
        return nodes, is_wanted

    def node_states(self, nodes: NDArray[np.int64]) -> NodeStates:
        tree = self.tree
        is_own = tree.has_state[nodes]
        states = tree.states[np.where(is_own, nodes, tree.parents[nodes])]
        return NodeStates(states, tree.tokens[nodes], tree.depths[nodes], np.full(len(nodes), self.slot), is_own)

    def receive(self, nodes: NDArray[np.int64], expanded: Expanded) -> None:
        self.tree.states[nodes], self.tree.has_state[nodes] = expanded.states, True
        self._received.append((nodes, expanded))

    def receive_prefix(self, expanded: Expanded) -> None:
        self._is_prefilled, self.is_prefix_due = True, False
        self.tree.entries[0] = len(self.task.prefix_ids) - 1
        if self._includes_root:
            self.receive(ROOT, expanded)

    def _next_request(self) -> bool:
        exploration = self.task.exploration
        try:
            request = exploration.send(self._answer()) if self._has_begun else next(exploration)
        except StopIteration as end:
            self.result = end.value
            return False
        if not self._has_begun:
            self._begin(request.tree)
        assert request.tree is self.tree, "an exploration has one tree"
        self._request, self._waiting, self._received = request, request.nodes, []
        self._evals, self._includes_root = 0, False
        return True

    def _begin(self, tree: Tree) -> None:
        self._has_begun, self.tree = True, tree
        if self.states is not None and 2 * len(self.states) > len(self._paths):
            self.states = None  # they would fill the memory, and many of them be dropped at once
        self._is_prefilled = self.states is not None
        self.memory = _NodeMemory(tree, self._paths, len(self.task.prefix_ids), self.states)

    def _answer(self) -> NodeAnswer:
        """Everything received, in the order of the request."""
        if not self._received:
            nothing = np.zeros((0, 0))
            return NodeAnswer(nothing.astype(np.int64), nothing, nothing.astype(np.int16), nothing.astype(np.bool_), 0)
        nodes = np.concatenate([nodes for nodes, _ in self._received])
        order = np.argsort(nodes)
        rows = order[np.searchsorted(nodes, self._request.nodes[: len(nodes)], sorter=order)]
        _, token_ids, log_probs, least, is_final = map(
            np.concatenate, zip(*(part for _, part in self._received), strict=True)
        )
        return NodeAnswer(token_ids[rows], log_probs[rows], least[rows], is_final[rows], self._evals)

    def _plan_piece(self) -> None:
        """As many of the waiting nodes as memory and budget allow; none of the others if the budget ends here."""
        nodes = self._waiting
        if self._is_one_evaluation_each(nodes):
            self._waiting = nodes[:0]
            self._start_piece(nodes, nodes, np.ones(len(nodes), dtype=np.bool_))
            return
        todo = self._missing(nodes)
        if int((self.tree.entries[todo] == ABSENT).sum()) > len(self.memory.free):
            fitting = np.cumsum(self.tree.depths[nodes]) <= self.memory.capacity
            nodes = nodes[: max(1, int(fitting.sum()))]
            self.memory.drop_all_but(nodes)
            todo = self._missing(nodes)
        count = self._affordable(nodes, len(todo))
        self._waiting = self._waiting[len(nodes) :] if count == len(nodes) else nodes[:0]
        if count == 0:
            return
        if count < len(nodes):
            nodes = nodes[:count]
            todo = self._missing(nodes)
        self.tree.compute_states(todo)
        self._start_piece(nodes, todo, np.isin(todo, nodes))

    def _is_one_evaluation_each(self, nodes: NDArray[np.int64]) -> bool:
        """The usual case: all parents are in memory, none of the nodes is, and there are free entries for them."""
        tree, most = self.tree, self._request.most_evals
        return (
            len(nodes) <= len(self.memory.free)
            and (most is None or self._evals + len(nodes) <= most)
            and int(tree.entries[tree.parents[nodes]].min()) != ABSENT
            and int(tree.entries[nodes].max()) == ABSENT
        )

    def _start_piece(self, nodes: NDArray[np.int64], todo: NDArray[np.int64], is_wanted: NDArray[np.bool_]) -> None:
        """Evaluate `todo`, for the next tokens of `nodes`."""
        self._evals += self._prefix_evals(nodes) + len(todo)
        self._includes_root = int(nodes.min()) == 0
        self.is_prefix_due = self._includes_root or not self._is_prefilled
        self.memory.place(todo)
        self._todo, self._is_wanted = todo, is_wanted

    def _missing(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """What must be evaluated for these nodes' next tokens: they and ancestors not in memory, by depth."""
        tree, below = self.tree, nodes[nodes > 0]
        above = tree.lineage(below)
        missing = np.union1d(above[(tree.entries[above] == ABSENT) & (above > 0)], below)
        by_depth: NDArray[np.int64] = missing[np.argsort(tree.depths[missing], kind="stable")]
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
        costs[below, self.tree.depths[nodes[below]] - 1] = True  # requested nodes are evaluated, in memory or not
        rows, _ = np.nonzero(costs)
        _, first = np.unique(above[costs], return_index=True)  # each counts where it is needed first
        spent = np.cumsum(np.bincount(rows[first], minlength=len(nodes))) + self._evals + prefix_evals
        return int((spent <= most).sum())


class _NodeMemory:
    """Which entries of a slot hold which nodes of a tree. `paths[e, :t]`: the entries from the first token down to the
    node of t tokens at entry e. The prefix takes the first entries."""

    def __init__(self, tree: Tree, paths: NDArray[np.int32], prefix_tokens: int, states: SearchedStates | None) -> None:
        self._tree, self._paths, self._prefix_tokens = tree, paths, prefix_tokens
        tree.entries[: tree.size] = ABSENT
        self.capacity = len(paths) - prefix_tokens
        """Nodes that fit beside the prefix."""
        self.reach = prefix_tokens if states is None else len(states)
        """One past the highest entry that was ever in use."""
        self.free = np.arange(len(paths) - 1, self.reach - 1, -1)
        if states is not None:
            assert len(states.entries) == tree.beams, "the states are those of another search"
            tree.entries[: tree.beams] = states.entries
            for group in tree.by_depth(np.arange(1, tree.beams)):
                self._write(group)

    def place(self, nodes: NDArray[np.int64]) -> None:
        """Give entries to those nodes that have none. Parents are in memory; if not, they come before children."""
        tree = self._tree
        is_flat = int(tree.entries[tree.parents[nodes]].min(initial=0)) != ABSENT
        nodes = nodes[tree.entries[nodes] == ABSENT]
        left = len(self.free) - len(nodes)
        assert left >= 0, "a piece of a request must fit into the memory"
        taken, self.free = self.free[left:], self.free[:left]
        tree.entries[nodes] = taken[::-1]
        self.reach = max(self.reach, int(taken.max(initial=-1)) + 1)
        for group in [nodes] if is_flat else tree.by_depth(nodes):
            self._write(group)

    def drop_all_but(self, needed: NDArray[np.int64]) -> None:
        """Hold only what `needed` nodes descend from."""
        tree = self._tree
        is_kept = np.zeros(tree.size, dtype=np.bool_)
        is_kept[tree.lineage(tree.parents[needed])] = True
        is_kept[0] = True
        entries = np.where(is_kept, tree.entries[: tree.size], ABSENT)
        tree.entries[: tree.size] = entries
        tree.has_dropped = True
        is_free = np.arange(len(self._paths)) >= self._prefix_tokens
        is_free[entries[entries != ABSENT]] = False
        self.free = np.flatnonzero(is_free)[::-1]

    def _write(self, nodes: NDArray[np.int64]) -> None:
        """A node's path is its parent's and itself."""
        tree = self._tree
        own = tree.entries[nodes]
        self._paths[own] = self._paths[tree.entries[tree.parents[nodes]]]
        self._paths[own, tree.depths[nodes] - 1] = own


def _pack(
    pieces: "list[tuple[_Flight[Any], NDArray[np.int64], NDArray[np.bool_]]]",
    fresh: "list[_Flight[Any]]",
    paths: NDArray[np.int32],
    *,
    entries: int,
    device: torch.device,
) -> TreeBatch:
    """One forward: the nodes of each window, one row per window, then prefixes. The columns of a row are the prefix and
    everything its nodes descend from, by entry. Outputs are the wanted nodes, then what follows each prefix."""
    counts = np.array([len(nodes) for _, nodes, _ in pieces], dtype=np.int64)
    slots = np.array([flight.slot for flight, _, _ in pieces], dtype=np.int64)
    prefix_tokens = np.array([len(flight.task.prefix_ids) for flight, _, _ in pieces], dtype=np.int64)
    token_ids, depths, own = (
        np.concatenate([ROOT[:0], *(getattr(flight.tree, name)[nodes] for flight, nodes, _ in pieces)])
        for name in ("tokens", "depths", "entries")
    )
    rows, lanes = np.repeat(np.arange(len(counts)), counts), ranges(counts)
    # Every (node, ancestor or itself) pair: the node's place and row, the ancestor's entry and depth − 1.
    node, step = np.nonzero(np.arange(int(depths.max(initial=1))) < depths[:, None])
    row, seen = rows[node], paths[slots[rows[node]], own[node], step]
    is_used = np.arange(entries) < prefix_tokens[:, None]  # [rows, entries]
    is_used[row, seen] = True
    used_rows, used = np.nonzero(is_used)
    reaches = np.bincount(used_rows, minlength=len(counts))
    ranks = ranges(reaches)
    column_of = np.zeros(is_used.shape, dtype=np.int64)
    column_of[used_rows, used] = ranks
    width = -(-max(1, int(reaches.max(initial=0))) // ENTRY_STEP) * ENTRY_STEP
    columns = np.zeros((len(counts), width), dtype=np.int64)
    columns[used_rows, ranks] = used
    # Entries of the prefix are the lowest, so they come first, each at its own position.
    positions = np.tile(np.arange(width), (len(counts), 1))
    positions[row, column_of[row, seen]] = prefix_tokens[row] + step
    sees = np.zeros((len(counts), max(1, int(counts.max(initial=0))), width), dtype=np.bool_)
    sees[rows, lanes] = np.arange(width) < prefix_tokens[rows, None]
    sees[row, lanes[node], column_of[row, seen]] = True
    nodes = Nodes(
        counts=counts,
        token_ids=token_ids,
        positions=prefix_tokens[rows] + depths - 1,
        entries=own,
        ancestry=sees,
        entry_positions=positions,
        slots=slots,
        columns=columns,
        reaches=tuple(reaches.tolist()),
    )
    chains = Chains([flight.slot for flight in fresh], [flight.task.prefix_ids for flight in fresh])
    wanted = np.flatnonzero(np.concatenate([np.zeros(0, dtype=np.bool_), *(is_wanted for _, _, is_wanted in pieces)]))
    ends = len(rows) + np.cumsum(chains.lengths) - 1
    return pack(nodes, chains, outputs=np.concatenate([wanted, ends]), device=device)
