"""The frontier: viable partial continuations that a search did not follow.

They hang below the beams that the search did follow; both together are a tree. `FrontierRecord` collects it during the
search of one window, as arrays. `SearchedStates` holds what the model computed for the beams, so that explorations
need not evaluate them again.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.models.base import Stored


class Beams(NamedTuple):
    """Every node the search followed, parents before children. The first is the empty one, its own parent."""

    parents: NDArray[np.int64]  # [beams]
    tokens: NDArray[np.int64]  # [beams]
    depths: NDArray[np.int64]  # [beams]


class Edits(NamedTuple):
    """Viability states of beams and least distances of nodes, under the exact rule."""

    beams: NDArray[np.int16]  # [beams, width]
    least: NDArray[np.int16]  # [nodes]


@dataclass(frozen=True, slots=True)
class Frontier:
    """Node i is one token, `tokens[i]`, below beam `parents[i]`."""

    beams: Beams
    parents: NDArray[np.int64]  # [nodes]
    tokens: NDArray[np.int64]  # [nodes]
    log_p: NDArray[np.float64]  # [nodes]
    edits: Edits | None = None
    """None when the search did not use the exact rule."""

    def __len__(self) -> int:
        return len(self.log_p)

    @classmethod
    def empty(cls) -> "Frontier":
        """Nothing but the root above it."""
        root = np.zeros(1, dtype=np.int64)
        return cls(Beams(root, root, root), root[:0], root[:0], np.zeros(0))


@dataclass(frozen=True, slots=True)
class SearchedStates:
    """What the model computed during a search: the chain, then every beam that was continued, step by step."""

    entries: NDArray[np.int64]
    """Where the state of each of the frontier's beams is in `stored`; the empty one's is that of the last prefix token.
    [beams]"""
    stored: Stored
    """One entry per token of the chain, then one per beam that is not on it, in the order of evaluation."""

    def __len__(self) -> int:
        return next((tensor.shape[1] for tensors in self.stored.values() for tensor in tensors), 0)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensors in self.stored.values() for tensor in tensors)


class _Step(NamedTuple):
    """The beams alive after a step."""

    parents: NDArray[np.int64]  # [beams]: among all beams of the window
    tokens: NDArray[np.int64]  # [beams]
    edits: NDArray[np.int16]  # [beams, width]
    log_p: NDArray[np.float64]  # [beams]
    least: NDArray[np.int16]  # [beams]
    evaluated: int
    """How many of them come before the verbatim path."""


class FrontierRecord:
    """The frontier of one window in the making."""

    def __init__(self, initial: NDArray[np.int16]) -> None:
        """`initial`: the viability state of the empty continuation."""
        root = np.zeros(1, dtype=np.int64)
        self._steps = [_Step(root, root, initial[None], root.astype(np.float64), root.astype(np.int16), 0)]
        self._first = 0  # place of the first living beam among all beams
        self._nodes: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int16]]]
        self._nodes = [(root[:0], root[:0], np.zeros(0), np.zeros(0, dtype=np.int16))]

    def step(self, banked: list[NDArray[Any]], place: int, *, beams: int, evaluated: int) -> None:
        """A step of the window at this place (the fields of `outcome.Banked`), after which this many beams live."""
        log_p, tokens, least, parents, *following = (array[place] for array in banked)
        (where,) = np.nonzero(log_p > -math.inf)
        kept = len(log_p) // len(parents)
        self._nodes.append((self._first + where // kept, tokens[where], log_p[where], least[where]))
        next_tokens, next_edits, next_log_p, next_least = (array[:beams].copy() for array in following)
        first, self._first = self._first, self._first + len(self._steps[-1].tokens)
        self._steps.append(_Step(first + parents[:beams], next_tokens, next_edits, next_log_p, next_least, evaluated))

    def stop(self) -> None:
        """The search stops here: its living beams are open nodes."""
        last = self._steps.pop()
        self._nodes.append((last.parents, last.tokens, last.log_p, last.least))

    def frontier(self, *, is_exact: bool) -> Frontier:
        """`is_exact`: whether the search used the exact viability rule."""
        parents, tokens, log_p, least = map(np.concatenate, zip(*self._nodes, strict=True))
        counts = [len(step.tokens) for step in self._steps]
        beams = Beams(
            np.concatenate([step.parents for step in self._steps]),
            np.concatenate([step.tokens for step in self._steps]),
            np.repeat(np.arange(len(counts)), counts),
        )
        edits = Edits(np.concatenate([step.edits for step in self._steps]), least) if is_exact else None
        return Frontier(beams, parents, tokens, log_p, edits)

    def entries(self, *, prefix_tokens: int, chain_tokens: int) -> NDArray[np.int64]:
        """Where the states of all beams are: on the chain or, in the order of evaluation, after it."""
        places: list[NDArray[np.int64]] = []
        free = chain_tokens
        for depth, step in enumerate(self._steps):
            own = np.full(len(step.tokens), prefix_tokens + depth - 1)
            own[: step.evaluated] = np.arange(free, free + step.evaluated)
            free += step.evaluated
            places.append(own)
        return np.concatenate(places)
