"""One window's nodes as arrays: partial continuations, each one token below its parent.

Node 0 is the empty continuation. Parents come before children. A node's edit state is known once the node has been
evaluated; its entry is its place in the model's memory.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from byrote.explore.ball import Ball
from byrote.search.frontier import Frontier

ABSENT = -1
"""The entry of a node that is not in memory. Not an index: numpy would take it for the last one."""


class Tree:
    """Nodes by number. The first `beams` of them are those the search followed, then come those it left open."""

    def __init__(self, ball: Ball, frontier: Frontier | None = None) -> None:
        self.ball = ball
        frontier = frontier if frontier is not None else Frontier.empty()
        parents, tokens, depths = frontier.beams
        self.beams, self.size = len(parents), len(parents) + len(frontier)
        self.parents = np.concatenate([parents, frontier.parents])
        self.tokens = np.concatenate([tokens, frontier.tokens])
        self.depths = np.concatenate([depths, depths[frontier.parents] + 1])
        self.entries = np.full(self.size, ABSENT, dtype=np.int64)
        self.log_p = np.concatenate([np.full(self.beams, np.nan), frontier.log_p])
        self.least = np.zeros(self.size, dtype=np.int16)
        self.states = np.zeros((self.size, ball.viability.width), dtype=np.int16)
        self.has_state = np.zeros(self.size, dtype=np.bool_)
        self.is_open = np.arange(self.size) >= self.beams
        """Whether a node's mass is neither accepted nor refuted nor that of its children."""
        self.has_dropped = False
        """Whether evaluated nodes were dropped from memory."""
        self._init_edits(frontier)

    def add(
        self,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        *,
        log_p: NDArray[np.float64] | float,
        least: NDArray[np.int16],
        is_open: bool,
    ) -> NDArray[np.int64]:
        """New nodes below these parents; their numbers."""
        first, self.size = self.size, self.size + len(parents)
        self._reserve(self.size)
        new = slice(first, self.size)
        self.parents[new] = parents
        self.tokens[new] = tokens
        self.depths[new] = self.depths[parents] + 1
        self.entries[new] = ABSENT
        self.log_p[new] = log_p
        self.least[new] = least
        self.has_state[new] = False
        self.is_open[new] = is_open
        return np.arange(first, self.size)

    def path(self, node: int) -> tuple[int, ...]:
        tokens: list[int] = []
        while node:
            tokens.append(int(self.tokens[node]))
            node = int(self.parents[node])
        return tuple(reversed(tokens))

    def lineage(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nodes and all their ancestors but the root, by depth; 0 where a node is shorter. [nodes, longest]"""
        above = np.zeros((len(nodes), int(self.depths[nodes].max(initial=0))), dtype=np.int64)
        (rows,) = np.nonzero(nodes > 0)
        current = nodes[rows]
        while len(current):
            above[rows, self.depths[current] - 1] = current
            current = self.parents[current]
            rows, current = rows[current > 0], current[current > 0]
        return above

    def missing(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many ancestors of each node are not in memory."""
        parents, places = np.unique(self.parents[nodes], return_inverse=True)
        above = self.lineage(parents)
        gaps: NDArray[np.int64] = ((self.entries[above] == ABSENT) & (above > 0)).sum(1)[places]
        return gaps

    def by_depth(self, nodes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Nodes that are ordered by depth, cut where it changes."""
        return np.split(nodes, np.flatnonzero(np.diff(self.depths[nodes])) + 1)

    def compute_states(self, nodes: NDArray[np.int64]) -> None:
        """Edit states of nodes ordered by depth, whose parents are known or among them."""
        for group in self.by_depth(nodes):
            self.states[group], self.has_state[group] = self.states_of(group), True

    def states_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int16]:
        """Edit states of nodes that are evaluated or whose parents are."""
        own = self.states[nodes]
        (unknown,) = np.nonzero(~self.has_state[nodes])
        rows = nodes[unknown]
        if len(rows):
            own[unknown], _ = self.ball.advance(self.states[self.parents[rows]], self.tokens[rows], self.depths[rows])
        return own

    def _init_edits(self, frontier: Frontier) -> None:
        """Edit states of the beams and least distances of the open nodes: from the search, or computed here."""
        opened = slice(self.beams, self.size)
        self.has_state[: self.beams] = True
        if frontier.edits is not None:
            self.states[: self.beams], self.least[opened] = frontier.edits
            return
        self.states[0] = self.ball.viability.initial().numpy()
        for depth in range(1, int(self.depths.max()) + 1):
            (rows,) = np.nonzero(self.depths == depth)
            above = self.states[self.parents[rows]]
            self.states[rows], self.least[rows] = self.ball.advance(above, self.tokens[rows], self.depths[rows])
        self.has_state[:] = True

    def _reserve(self, size: int) -> None:
        capacity = len(self.parents)
        if size > capacity:
            for name in ("parents", "tokens", "depths", "entries", "log_p", "least", "states", "has_state", "is_open"):
                old: NDArray[Any] = getattr(self, name)
                grown = np.empty((max(size, 2 * capacity), *old.shape[1:]), dtype=old.dtype)
                grown[:capacity] = old
                setattr(self, name, grown)
