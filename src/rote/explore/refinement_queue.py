"""Open nodes in the order in which expanding them pays, ancestors that must be evaluated again counted.

A ranking needs its best few nodes, again and again, of very many. They are kept in a short list, which holds everything
that any ranking does not put below its floor; the rest waits in arrays that are looked through only when the list runs
out.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.explore.tree import ABSENT, Tree

PATIENCE = 7
"""Turns without an offer after which no ranking has one: no order of turns is longer."""
SHORT = 256
"""Nodes not below the floor of each ranking when a short list has just been made."""
MOST = 1024
"""A longer short list is shortened."""
ROUNDS = 4
"""Choices after which nodes that are gone leave the short list."""


class _Ranked(NamedTuple):
    """Nodes and how high each ranking puts them."""

    nodes: NDArray[np.int64]  # [nodes]
    ranks: NDArray[np.float64]  # [nodes, rankings]

    def where(self, chosen: NDArray[np.bool_]) -> "_Ranked":
        return _Ranked(self.nodes[chosen], self.ranks[chosen])


class RefineQueue:
    """All open nodes of a tree, ranked in one or more ways.

    A node of t tokens, log mass m and r edits left ranks by m + gain[t, r] − log(steps[t] + missing), where `missing`
    is the number of its ancestors that must be evaluated first.
    """

    def __init__(
        self,
        tree: Tree,
        gains: list[NDArray[np.float64]],
        steps: list[NDArray[np.float64]],
        *,
        is_remembered: bool,
    ) -> None:
        """`is_remembered`: the beams above all open nodes will be in memory."""
        self._tree = tree
        shape = (tree.ball.length + 1, tree.ball.budget + 1)
        self._gains = np.stack([np.broadcast_to(gain, shape) for gain in gains], -1)
        self._steps = np.stack(steps, -1)  # [T + 1, rankings]
        self._worth = self._gains - np.log(self._steps)[:, None]  # [T + 1, budget + 1, rankings]
        self._dearest = float(self._steps.max())
        self._missing = None if is_remembered else tree.depths - 1
        self._short: list[_Ranked] = []
        self._rest: list[_Ranked] = []
        self._floors = np.full(len(steps), -np.inf)
        self._gone = 0  # at most so many nodes of the short list are not open any more
        self._fill()

    def add(self, nodes: NDArray[np.int64]) -> None:
        """Nodes that have just been opened below nodes in memory."""
        new = self._ranked(nodes, None)
        is_high = self._is_high(new)
        self._short.append(new.where(is_high))
        self._rest.append(new.where(~is_high))

    def refresh(self) -> None:
        """Look at what is in memory now. Nothing to do while everything the search handed over is, and all since."""
        tree = self._tree
        has_gaps = tree.was_forgotten or int(tree.entries[1 : tree.beams].min(initial=0)) == ABSENT
        if not has_gaps and self._missing is None:
            return
        self._missing = None
        if has_gaps:
            nodes = np.flatnonzero(tree.is_open[: tree.size])
            self._missing = np.zeros(tree.size, dtype=np.int64)
            self._missing[nodes] = tree.missing(nodes)
        self._fill()

    def choose(self, turns: Iterator[int], *, count: int, affordable: int) -> NDArray[np.int64]:
        """Up to `count` nodes, by each ranking in turn the best that pays within what is left of `affordable`.

        A ranking that looks some steps ahead passes over what could not be finished. It offers the first `count` that
        pay to begin with; when none of them does any more, it is passed over itself.
        """
        is_tight = self._missing is not None or affordable < self._dearest + count
        offers = [iter(offered) for offered in self._offers(count, affordable if is_tight else None)]
        chosen: dict[int, None] = {}
        refusals = 0
        while len(chosen) < count and affordable > 0 and refusals < PATIENCE:
            turn = next(turns)
            refusals += 1
            for node in offers[turn]:
                if node not in chosen and not (is_tight and self._price(node, turn) > affordable):
                    chosen[node] = None
                    affordable -= 1 if self._missing is None else 1 + int(self._missing[node])
                    refusals = 0
                    break
        self._gone += len(chosen)
        return np.fromiter(chosen, dtype=np.int64, count=len(chosen))

    def _offers(self, count: int, affordable: int | None) -> list[list[int]]:
        """The first nodes of each ranking, the best first; of those that pay, where there is little to spend."""
        if self._gone > ROUNDS * count:
            self._short, self._gone = [self._living(self._short)], 0
        short = _joined(self._short)
        offered = int(np.count_nonzero(short.ranks >= self._floors, axis=0).min())
        if offered < count + self._gone:
            short = self._shorten(self._living([short, *self._rest]), [], at_least=count)
        elif len(short.nodes) > MOST:
            short = self._shorten(self._living([short]), self._rest, at_least=count)
        self._short = [short]
        turns = range(len(self._floors))
        if affordable is None:
            return [self._first(short, turn, count) for turn in turns]
        return [self._first_paying(short, turn, count, affordable) for turn in turns]

    def _first_paying(self, short: _Ranked, turn: int, count: int, affordable: int) -> list[int]:
        paying = self._paying(short, turn, affordable)
        if np.count_nonzero(paying.ranks[:, turn] >= self._floors[turn]) < count + self._gone:
            paying = self._paying(_joined([short, *self._rest]), turn, affordable)
        return self._first(paying, turn, count)

    def _first(self, ranked: _Ranked, turn: int, count: int) -> list[int]:
        nodes, ranks, enough = ranked.nodes, -ranked.ranks[:, turn], count + self._gone
        if len(nodes) > enough:
            first = np.argpartition(ranks, enough)[:enough]
            nodes, ranks = nodes[first], ranks[first]
        nodes = nodes[np.lexsort((nodes, ranks))]  # equal ranks: first come, first served
        best: list[int] = nodes[self._tree.is_open[nodes]][:count].tolist()
        return best

    def _paying(self, ranked: _Ranked, turn: int, affordable: int) -> _Ranked:
        prices = self._steps[self._tree.depths[ranked.nodes], turn]
        return ranked.where((prices if self._missing is None else prices + self._missing[ranked.nodes]) <= affordable)

    def _price(self, node: int, turn: int) -> float:
        steps = float(self._steps[self._tree.depths[node], turn])
        return steps if self._missing is None else steps + int(self._missing[node])

    def _fill(self) -> None:
        """Begin afresh with all open nodes."""
        nodes = np.flatnonzero(self._tree.is_open[: self._tree.size])
        self._short = [self._shorten(self._ranked(nodes, self._missing), [])]

    def _ranked(self, nodes: NDArray[np.int64], missing: NDArray[np.int64] | None) -> _Ranked:
        tree = self._tree
        depths, left = tree.depths[nodes], tree.ball.budget - tree.least[nodes]
        worth = self._worth[depths, left]
        if missing is not None:
            worth = self._gains[depths, left] - np.log(self._steps[depths] + missing[nodes][:, None])
        return _Ranked(nodes, tree.log_p[nodes][:, None] + worth)

    def _is_high(self, ranked: _Ranked) -> NDArray[np.bool_]:
        high: NDArray[np.bool_] = np.any(ranked.ranks >= self._floors, axis=-1)
        return high

    def _living(self, parts: list[_Ranked]) -> _Ranked:
        joined = _joined(parts)
        return joined.where(self._tree.is_open[joined.nodes])

    def _shorten(self, ranked: _Ranked, rest: list[_Ranked], *, at_least: int = 0) -> _Ranked:
        """Set the floors so that a short list of these has enough nodes of every ranking, and everything in `rest` is
        below them; the list."""
        self._gone = 0
        self._floors, self._rest = np.full(ranked.ranks.shape[1], -np.inf), rest
        size = max(SHORT, at_least)
        if len(ranked.nodes) <= size:
            return ranked
        self._floors = -np.partition(-ranked.ranks, size - 1, axis=0)[size - 1]
        is_high = self._is_high(ranked)
        self._rest = [*rest, ranked.where(~is_high)]
        return ranked.where(is_high)


def _joined(parts: list[_Ranked]) -> _Ranked:
    if len(parts) == 1:
        return parts[0]
    return _Ranked(np.concatenate([part.nodes for part in parts]), np.concatenate([part.ranks for part in parts]))
