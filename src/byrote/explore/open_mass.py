"""The open mass of one window: disjoint partial continuations whose probability is neither accepted nor refuted.

    mass within the budget  =  accepted  +  Σ over open nodes of their share that ends in the ball

Closure, refinement and sampling work on this pool. Expanding a node replaces it by its viable children: what is
accepted rises, accepted + open falls, and both always enclose the truth.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from byrote.explore.ball import Ball
from byrote.explore.base import NodeAnswer
from byrote.explore.tree import Tree
from byrote.search.base import ByLeast
from byrote.search.frontier import Frontier
from byrote.types import Continuation
from byrote.verdict import Bounds


class OpenMass:
    """The open nodes of a tree, by their least final distance, and what was accepted, by distance."""

    def __init__(
        self, ball: Ball, frontier: Frontier, *, accepted: Sequence[float], unlisted: ByLeast = (), keep: int = 0
    ) -> None:
        """`accepted[e]`: mass found within e edits. `unlisted`: mass of children the search did not list, by their
        least final distance; it can be neither explored nor refuted and stays in the upper bounds."""
        self.ball = ball
        self.tree = Tree(ball, frontier)
        self.tree.is_open &= self.tree.least <= ball.budget
        self.accepted = np.diff(np.asarray(accepted, dtype=np.float64), prepend=0.0)  # by exact distance
        self._unlisted = np.asarray(unlisted or (0.0,) * (ball.budget + 1), dtype=np.float64)
        self._keep = keep
        self.found: list[Continuation] = []
        """The heaviest accepted continuations."""
        self._upper = np.ones(ball.budget + 1)
        self.sum_up()

    def open_nodes(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.tree.is_open[: self.tree.size])

    def sum_up(self) -> None:
        """Add up the open mass afresh. In between it is updated node by node, and collects rounding errors."""
        nodes = self.open_nodes()
        self._open = self._by_least(self.tree.least[nodes], np.exp(self.tree.log_p[nodes]))
        self.open_count = len(nodes)

    @property
    def open_mass(self) -> float:
        return float(self._open.sum())

    @property
    def unlisted(self) -> float:
        return float(self._unlisted.sum())

    @property
    def lower(self) -> float:
        return float(self.accepted.sum())

    def bounds(self) -> Bounds:
        """Certified now. Upper bounds never rise, not even by rounding."""
        lower = np.minimum(1.0, np.cumsum(self.accepted))
        reachable = np.cumsum(np.maximum(self._open, 0.0) + self._unlisted)
        self._upper = np.maximum(lower, np.minimum(self._upper, lower + reachable))
        return Bounds(tuple(lower.tolist()), tuple(self._upper.tolist()))

    def expand(self, nodes: NDArray[np.int64], answer: NodeAnswer) -> NDArray[np.int64]:
        """Replace nodes by their viable children; those of T tokens are accepted. The numbers of the new nodes."""
        tree = self.tree
        log_p = tree.log_p[nodes, None] + answer.log_probs
        is_viable = answer.least <= self.ball.budget
        is_last = tree.depths[nodes] + 1 == self.ball.length
        if is_last.any():
            self._accept(nodes, answer, log_p, is_viable & is_last[:, None])
            is_viable = is_viable & ~is_last[:, None]
        rows, places = np.nonzero(is_viable)
        least, children = answer.least[rows, places], log_p[rows, places]
        self._close(nodes)
        self._open += self._by_least(least, np.exp(children))
        self.open_count += len(rows)
        return tree.add(nodes[rows], answer.token_ids[rows, places], log_p=children, least=least, is_open=True)

    def settle(self, node: int, *, log_p: float) -> None:
        """The node's one viable completion has this probability, at the whole budget; the rest of it is refuted."""
        self._close(np.array([node]))
        self.accepted[self.ball.budget] += np.exp(log_p)
        if log_p > -np.inf:
            tail = self.ball.suffix_ids[int(self.tree.depths[node]) :]
            self._note([Continuation((*self.tree.path(node), *tail), log_p, self.ball.budget)])

    def _close(self, nodes: NDArray[np.int64]) -> None:
        self._open -= self._by_least(self.tree.least[nodes], np.exp(self.tree.log_p[nodes]))
        self.tree.is_open[nodes] = False
        self.open_count -= len(nodes)
        if self.open_count == 0:
            self._open[:] = 0.0

    def _accept(
        self, nodes: NDArray[np.int64], answer: NodeAnswer, log_p: NDArray[np.float64], is_accepted: NDArray[np.bool_]
    ) -> None:
        rows, places = np.nonzero(is_accepted)
        distances, heavy = answer.least[rows, places], log_p[rows, places]
        self.accepted += self._by_least(distances, np.exp(heavy))
        if not self._keep:
            return
        best = np.argsort(-heavy, kind="stable")[: self._keep].tolist()
        tokens, parents = answer.token_ids[rows, places], nodes[rows]
        paths = [(*self.tree.path(int(parents[one])), int(tokens[one])) for one in best]
        self._note(list(map(Continuation, paths, heavy[best].tolist(), distances[best].tolist())))

    def _note(self, found: list[Continuation]) -> None:
        self.found = sorted([*self.found, *found], key=lambda each: -each.log_p)[: self._keep]

    def _by_least(self, least: NDArray[np.int16], mass: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(least, weights=mass, minlength=self.ball.budget + 1).astype(np.float64, copy=False)
