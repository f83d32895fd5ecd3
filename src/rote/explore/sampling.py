"""Sampling on the tree: many continuations at once; samples that stand at the same node share its evaluation.

A sample is a ticket. It stands at a node and holds a part [low, high) of the node's unit line, on which the children
lie side by side, each as long as its probability. It draws a point of its part, moves to the child the point falls
into, and takes along what of its part lies in that child. A ticket that holds the whole line is a plain sample under
the policy φ; tickets that share a line out among themselves are stratified: they spread more evenly than plain samples,
and are independent of each other all the same, because nobody's part or draw depends on another's.

A ticket is lost when its path ends too soon, has probability 0, or can no longer end in the ball.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.explore.open_mass import Ball
from rote.explore.trie import Exploration, Path, Request

BATCH = 64
"""Nodes asked for at once; deepest first, so that little has to be remembered."""


class Starts(NamedTuple):
    """Where tickets start: disjoint nodes (none an ancestor of another)."""

    paths: list[Path]
    states: NDArray[np.int16]  # [starts, width]


class Tickets(NamedTuple):
    """`starts[i]`: where ticket i starts; it draws from [low, high) of that node's line."""

    starts: NDArray[np.int64]  # [tickets]
    low: NDArray[np.float64]  # [tickets]
    high: NDArray[np.float64]  # [tickets]

    @classmethod
    def plain(cls, count: int) -> "Tickets":
        """Plain samples from the first start."""
        return cls(np.zeros(count, dtype=np.int64), np.zeros(count), np.ones(count))

    @classmethod
    def stratified(cls, count: int, mass: NDArray[np.float64], generator: np.random.Generator) -> "Tickets":
        """One ticket from each of `count` equal parts of the starts' masses laid side by side."""
        edges = unit_line(mass)
        low, high = np.arange(count) / count, np.arange(1, count + 1) / count
        starts = np.searchsorted(edges, _drawn(low, high, generator), side="right") - 1
        return cls(starts, *_part(low, high, edges[starts], edges[starts + 1]))


class Rolled(NamedTuple):
    """What became of every ticket. `shares` counts, for those that reached the last token, the accepted probability of
    the node they stood at: it has the mean of `hits` and less noise."""

    hits: NDArray[np.bool_]  # [tickets]: ended in the ball
    shares: NDArray[np.float64]  # [tickets]
    token_evals: int


class _Ticketed(NamedTuple):
    path: Path
    state: NDArray[np.int16]
    tickets: NDArray[np.int64]  # numbers of the tickets that stand here


def roll(
    ball: Ball,
    starts: Starts,
    tickets: Tickets,
    generator: np.random.Generator,
    *,
    stops_when_lost: bool = True,
) -> Exploration[Rolled]:
    """Follow every ticket to its end. With `stops_when_lost` false, tickets that cannot count any more are followed
    to T tokens all the same, as plain sampling would."""
    low, high = tickets.low.copy(), tickets.high.copy()
    hits, shares = np.zeros(len(low), dtype=np.bool_), np.zeros(len(low))
    token_evals = 0
    pending = [
        _Ticketed(starts.paths[start], starts.states[start], numbers)
        for start, numbers in _groups(tickets.starts, np.arange(len(low)))
    ]
    while pending:
        chosen, pending = pending[-BATCH:], pending[:-BATCH]
        answer = yield Request([item.path for item in chosen])
        token_evals += answer.token_evals
        depths = np.array([len(item.path) for item in chosen], dtype=np.int64)
        children = ball.children(np.stack([item.state for item in chosen]), depths, answer)
        numbers = np.concatenate([item.tickets for item in chosen])
        rows = np.repeat(np.arange(len(chosen)), [len(item.tickets) for item in chosen])
        edges = unit_line(np.exp(answer.log_probs))
        points = _drawn(low[numbers], high[numbers], generator)
        counts = np.cumsum([len(item.tickets) for item in chosen])[:-1]
        places = np.concatenate(
            [
                np.searchsorted(line, own, side="right") - 1
                for line, own in zip(edges, np.split(points, counts), strict=True)
            ]
        )
        low[numbers], high[numbers] = _part(low[numbers], high[numbers], edges[rows, places], edges[rows, places + 1])
        accepted = children.is_viable & (depths + 1 == ball.length)[:, None]
        hits[numbers] = accepted[rows, places]
        shares[numbers] = (np.diff(edges) * accepted).sum(-1)[rows]
        goes_on = (children.is_open & (children.is_viable | (not stops_when_lost)))[rows, places]
        kept = answer.token_ids.shape[1]
        for place, group in _groups((rows * kept + places)[goes_on], numbers[goes_on]):
            parent, child = chosen[place // kept], (place // kept, place % kept)
            pending.append(_Ticketed((*parent.path, int(answer.token_ids[child])), children.states[child], group))
    return Rolled(hits, shares, token_evals)


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


def _groups(keys: NDArray[np.int64], numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """The numbers of each key, keys ascending."""
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    return [] if len(found) == 0 else list(zip(found.tolist(), np.split(numbers[order], first[1:]), strict=True))
