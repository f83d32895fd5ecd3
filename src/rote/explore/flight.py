"""A window in flight: its exploration, and what is still to be evaluated for its current request."""

from typing import Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.explore.ball import Judged, Standing
from rote.explore.base import Answer, ExploreTask, Result
from rote.explore.held_nodes import Memory
from rote.explore.tree import ABSENT, Tree

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
