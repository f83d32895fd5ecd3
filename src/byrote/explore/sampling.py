"""Sampling on the tree: many continuations at once; samples that are at the same node share its evaluation.

A sample is at a node and holds a part [low, high) of the node's unit line, on which the children lie side by side, each
as long as its probability. It draws a point of its part, moves to the child the point falls into, and takes along what
of its part lies in that child. A sample that holds the whole line is a plain sample under the policy φ; samples that
share a line are stratified: they spread more evenly than plain samples, and are independent all the same, because no
part or draw depends on another's.

A sample is lost when its path ends too soon, has probability 0, or can no longer end in the ball. All samples of a
window move on by one token at a time.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.explore.ball import ENDED
from byrote.explore.base import Exploration, NodeAnswer, NodeRequest
from byrote.explore.tree import Tree

WIDE = 1024
"""Answers listing more tokens than this are not kept once used; requesting them again costs an evaluation."""
MOST_KEPT = 100_000
"""Nodes whose answers are kept from one call to the next; beyond, all are dropped."""
UNKNOWN = -1
"""In place of a row or node that is not there yet; never used as an index."""


class Samples(NamedTuple):
    """Sample i starts at node `nodes[i]` and draws from [low, high) of its line."""

    nodes: NDArray[np.int64]  # [samples]
    low: NDArray[np.float64]  # [samples]
    high: NDArray[np.float64]  # [samples]

    @classmethod
    def plain(cls, count: int) -> "Samples":
        """Plain samples from the root."""
        return cls(np.zeros(count, dtype=np.int64), np.zeros(count), np.ones(count))

    @classmethod
    def stratified(
        cls, count: int, nodes: NDArray[np.int64], mass: NDArray[np.float64], generator: np.random.Generator
    ) -> "Samples":
        """One sample from each of `count` equal parts of the nodes' masses laid side by side."""
        edges = unit_line(mass)
        low, high = np.arange(count) / count, np.arange(1, count + 1) / count
        places = np.searchsorted(edges, _drawn(low, high, generator), side="right") - 1
        return cls(nodes[places], *_part(low, high, edges[places], edges[places + 1]))


class Sampled(NamedTuple):
    """The end of every sample. `shares` counts, for those that reached the last token, the accepted probability of the
    node they were at: it has the mean of `hits` and less noise."""

    hits: NDArray[np.bool_]  # [samples]: ended in the ball
    shares: NDArray[np.float64]  # [samples]
    token_evals: int


class Sampler:
    """Samples the tree of one window; answers to earlier samples are kept for later ones."""

    def __init__(self, tree: Tree, *, counts_target: bool = True) -> None:
        """`counts_target`: whether a sample that ends at the target itself is a hit."""
        self._tree = tree
        self._nearest = 0 if counts_target else 1
        self._rows = np.zeros(0, dtype=np.int64)  # by node: its row in what follows, or UNKNOWN
        self._size = 0
        self._owners = np.zeros(0, dtype=np.int64)  # [rows]: the node
        self._edges = np.zeros((0, 0))  # [rows, kept + 1]: its line
        self._token_ids = np.zeros((0, 0), dtype=np.int64)  # [rows, kept]
        self._least = np.zeros((0, 0), dtype=np.int16)  # [rows, kept]
        self._is_final = np.zeros((0, 0), dtype=np.bool_)  # [rows, kept]
        self._below = np.zeros((0, 0), dtype=np.int64)  # [rows, kept]: children that were visited, or UNKNOWN

    def follow(
        self, samples: Samples, generator: np.random.Generator, *, stops_when_lost: bool = True
    ) -> Exploration[Sampled]:
        """Follow every sample to its end. With `stops_when_lost` false, samples that cannot count any more are followed
        to T tokens all the same, as plain sampling would."""
        tree, budget = self._tree, self._tree.ball.budget
        if self._size > MOST_KEPT:
            self._drop_answers()
        nodes, low, high = samples.nodes.copy(), samples.low.copy(), samples.high.copy()
        hits, shares = np.zeros(len(nodes), dtype=np.bool_), np.zeros(len(nodes))
        alive, token_evals = np.arange(len(nodes)), 0
        while len(alive):
            token_evals += yield from self._request_missing(nodes[alive])
            rows = self._rows[nodes[alive]]
            places = self._places(rows, _drawn(low[alive], high[alive], generator))
            low[alive], high[alive] = _part(
                low[alive], high[alive], self._edges[rows, places], self._edges[rows, places + 1]
            )
            least = self._least[rows, places]
            is_final = self._is_final[rows, places]
            is_last = is_final | (tree.depths[nodes[alive]] + 1 == tree.ball.length)
            if is_last.any():
                hits[alive] = is_final & self._is_accepted(least)
                last = rows[is_last]
                shares[alive[is_last]] = (np.diff(self._edges[last]) * self._is_accepted(self._least[last])).sum(-1)
            goes_on = ~is_last & ((least <= budget) if stops_when_lost else (least < ENDED))
            alive = alive[goes_on]
            nodes[alive] = self._children(rows[goes_on], places[goes_on])
        return Sampled(hits, shares, token_evals)

    def _request_missing(self, nodes: NDArray[np.int64]) -> Exploration[int]:
        """Request the answers of these nodes that are not there; the evaluations it took."""
        tree = self._tree
        if len(self._rows) < tree.size:
            more = np.full(max(tree.size, 2 * len(self._rows)) - len(self._rows), UNKNOWN, dtype=np.int64)
            self._rows = np.concatenate([self._rows, more])
        if self._edges.shape[1] > WIDE:
            self._drop_answers()
        missing = np.unique(nodes[self._rows[nodes] == UNKNOWN])
        if len(missing) == 0:
            return 0
        answer = yield NodeRequest(tree, missing)
        self._store(missing, answer)
        return answer.token_evals

    def _drop_answers(self) -> None:
        self._rows[:], self._size = UNKNOWN, 0

    def _store(self, nodes: NDArray[np.int64], answer: NodeAnswer) -> None:
        first, self._size = self._size, self._size + len(nodes)
        unvisited = np.full(answer.least.shape, UNKNOWN, dtype=np.int64)
        self._owners = _written(self._owners, first, nodes)
        self._edges = _written(self._edges, first, unit_line(np.exp(answer.log_probs)))
        self._token_ids = _written(self._token_ids, first, answer.token_ids)
        self._least = _written(self._least, first, answer.least)
        self._is_final = _written(self._is_final, first, answer.is_final)
        self._below = _written(self._below, first, unvisited)
        self._rows[nodes] = np.arange(first, self._size)

    def _places(self, rows: NDArray[np.int64], points: NDArray[np.float64]) -> NDArray[np.int64]:
        """The child that each point falls into; children of length 0 are passed over."""
        if self._edges.shape[1] <= WIDE:
            passed: NDArray[np.int64] = np.count_nonzero(self._edges[rows] <= points[:, None], axis=1)
            return passed - 1
        found = (
            np.searchsorted(self._edges[row], point, side="right") for row, point in zip(rows, points, strict=True)
        )
        return np.fromiter(found, dtype=np.int64, count=len(rows)) - 1

    def _is_accepted(self, least: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Of finished continuations, by their distance. Only the target itself has distance 0."""
        return (least >= self._nearest) & (least <= self._tree.ball.budget)

    def _children(self, rows: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nodes that samples move to; added to the tree where they are new."""
        below = self._below[rows, places]
        is_new = below == UNKNOWN
        if is_new.any():
            kept = self._below.shape[1]
            new_rows, new_places = np.divmod(np.unique(rows[is_new] * kept + places[is_new]), kept)
            tokens, least = self._token_ids[new_rows, new_places], self._least[new_rows, new_places]
            self._below[new_rows, new_places] = self._tree.add(
                self._owners[new_rows], tokens, log_p=np.nan, least=least, is_open=False
            )
            below = self._below[rows, places]
        return below


def _written(held: NDArray[Any], first: int, values: NDArray[Any]) -> NDArray[Any]:
    """The array with `values` written from row `first` on, grown where they do not fit."""
    end = first + len(values)
    if len(held) < end:
        grown = np.empty((max(end, 2 * len(held)), *values.shape[1:]), dtype=values.dtype)
        if first:
            grown[:first] = held[:first]
        held = grown
    held[first:end] = values
    return held


def unit_line(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of parts of these lengths laid side by side, scaled to go from 0 to 1. [..., parts + 1]"""
    edges = np.cumsum(lengths, -1)
    return np.concatenate([np.zeros_like(edges[..., :1]), edges / edges[..., -1:]], -1)


def _drawn(low: NDArray[np.float64], high: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """A point of each [low, high). Below 1 whatever the rounding, so that it falls into a part that has a length."""
    points = low + (high - low) * generator.random(len(low))
    below: NDArray[np.float64] = np.minimum(points, np.nextafter(1.0, 0.0))
    return below


def _part(
    low: NDArray[np.float64], high: NDArray[np.float64], first: NDArray[np.float64], last: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What of [low, high) lies in [first, last), on a line of its own."""
    length = np.maximum(last - first, np.finfo(np.float64).tiny)
    return np.clip((low - first) / length, 0.0, 1.0), np.clip((high - first) / length, 0.0, 1.0)
