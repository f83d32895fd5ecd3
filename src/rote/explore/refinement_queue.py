"""Open nodes in the order in which expanding them pays, ancestors that must be evaluated again counted.

A node can be expanded once its parent's state is in memory. Siblings share that cost, so nodes are kept in families;
a family's place in a trie of paths says how many ancestors are missing. Whatever is evaluated makes the families
below it cheaper, so they come up again with a better rank; ranks that were better than they are now are put back.
"""

import heapq
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rote.explore.open_mass import OpenMass
from rote.explore.trie import Path


class Family:
    """A path, its open children by each ranking, and how many evaluations are missing to reach them."""

    __slots__ = ("below", "depth", "is_loaded", "members", "missing")

    def __init__(self, depth: int, missing: int) -> None:
        self.depth = depth
        self.missing = missing
        self.is_loaded = missing == 0
        self.members: list[list[tuple[float, int]]] = []  # by ranking, worth and node, the best last
        self.below: dict[int, Family] = {}


class RefineQueue:
    """All open nodes of a pool, ranked in one or more ways.

    A node of t tokens, log mass m and r edits left ranks by m + gain[t, r] − log(steps[t] + missing), where `missing`
    is the number of its ancestors that must be evaluated first.
    """

    def __init__(self, pool: OpenMass, gains: list[NDArray[np.float64]], steps: list[NDArray[np.float64]]) -> None:
        self._pool, self._gains, self._steps = pool, gains, steps
        self._root = Family(0, 0)
        self._heaps: list[list[tuple[float, int, Family]]] = [[] for _ in gains]
        self._pushes = 0
        self._taken: set[int] = set()
        self.add(pool.open_nodes())

    def add(self, nodes: NDArray[np.int64]) -> None:
        """Nodes that are open now and were not in the queue."""
        self._taken.difference_update(nodes.tolist())
        paths, places = self._pool.families(nodes)
        ends = np.cumsum(np.bincount(places, minlength=len(paths))).tolist()
        rankings = []
        for gain in self._gains:
            worth = self._worth(nodes, gain)
            order = np.lexsort((worth, places))  # by family, the best last
            rankings.append(list(zip(worth[order].tolist(), nodes[order].tolist(), strict=True)))
        for path, first, end in zip(paths, [0, *ends][:-1], ends, strict=True):
            *_, family = self._lineage(path)
            own = [ranked[first:end] for ranked in rankings]
            if family.members:
                own = [sorted({*old, *new}) for old, new in zip(family.members, own, strict=True)]
            family.members = own
            self._push(family)

    def pop(self, ranking: int, affordable: int) -> tuple[int, int] | None:
        """The best node by one of the rankings that pays within `affordable` evaluations, and its cost; None if none.

        A ranking that looks some steps ahead passes over what could not be finished. What the node needs counts as
        evaluated from now on.
        """
        heap = self._heaps[ranking]
        while heap:
            rank, _, family = heapq.heappop(heap)
            now = self._rank(family, ranking)
            if now is None:
                continue
            if now > rank:  # its best child is gone since: back into line
                self._push_to(ranking, family, now)
                continue
            if self._steps[ranking][family.depth + 1] + family.missing > affordable:
                continue  # it comes back when an ancestor is evaluated
            cost = family.missing + 1
            _, node = family.members[ranking].pop()
            self._taken.add(node)
            self._push(family)
            self.load(self._pool.path(node)[:-1])
            return node, cost
        return None

    def _worth(self, nodes: NDArray[np.int64], gain: NDArray[np.float64]) -> NDArray[np.float64]:
        pool = self._pool
        left = pool.ball.budget - pool.least[nodes]
        worth: NDArray[np.float64] = pool.log_p[nodes] + gain[pool.depths[nodes], left]
        return worth

    def _rank(self, family: Family, ranking: int) -> float | None:
        """Lower is better. None when no child is left; children that are gone meanwhile are dropped."""
        members = family.members[ranking] if family.members else []
        while members and (members[-1][1] in self._taken or not self._pool.is_open[members[-1][1]]):
            members.pop()
        if not members:
            return None
        steps = float(self._steps[ranking][family.depth + 1])
        return math.log(steps + family.missing) - members[-1][0]

    def _push(self, family: Family) -> None:
        for ranking in range(len(self._heaps)):
            rank = self._rank(family, ranking)
            if rank is not None:
                self._push_to(ranking, family, rank)

    def _push_to(self, ranking: int, family: Family, rank: float) -> None:
        self._pushes += 1  # equal ranks: first come, first served
        heapq.heappush(self._heaps[ranking], (rank, self._pushes, family))

    def _lineage(self, path: Path) -> Iterator[Family]:
        """The families from the root down to the one of this path; new ones where there are none."""
        family = self._root
        yield family
        for token in path:
            child = family.below.get(token)
            if child is None:
                child = family.below[token] = Family(family.depth + 1, family.missing + 1)
            family = child
            yield family

    def load(self, path: Path) -> None:
        """This path and its ancestors are in memory: what hangs below them got cheaper."""
        fresh = [family for family in self._lineage(path) if not family.is_loaded]
        for loaded in fresh:
            loaded.is_loaded, loaded.missing = True, 0
            self._push(loaded)
        for loaded in fresh:
            for cheaper in _unloaded_below(loaded):
                self._push(cheaper)


def _unloaded_below(loaded: Family) -> Iterator[Family]:
    """Families below a loaded one whose way to memory became shorter, updated."""
    waiting = [family for family in loaded.below.values() if not family.is_loaded]
    while waiting:
        family = waiting.pop()
        missing = family.depth - loaded.depth
        if missing < family.missing:
            family.missing = missing
            yield family
        waiting += [child for child in family.below.values() if not child.is_loaded]
