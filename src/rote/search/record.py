"""What a step of the search set aside and what it follows, and a window's record of both: a tree in the making."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rote.search.beam import Advance
from rote.search.frontier import Beams, Edits, Frontier


class Banked(NamedTuple):
    """One step of every slot, in tensors that are on their way to the host."""

    log_p: Tensor  # [slots, lanes · kept] float64: of banked children, −inf elsewhere
    tokens: Tensor  # [slots, lanes · kept] int64
    least: Tensor  # [slots, lanes · kept] int16
    parents: Tensor  # [slots, lanes] int64: the lane that each of the next beams continues
    next_tokens: Tensor  # [slots, lanes] int64
    next_edits: Tensor  # [slots, lanes, width] int16
    next_log_p: Tensor  # [slots, lanes] float64
    next_least: Tensor  # [slots, lanes] int16

    @classmethod
    def of(cls, advanced: Advance) -> "Banked":
        state, candidates = advanced.state, advanced.candidates
        newest = (state.step - 1)[:, None, None].expand(-1, state.paths.shape[1], 1)
        next_tokens = state.paths.gather(2, newest)[..., 0]
        return cls(
            advanced.banked,
            candidates.tokens,
            candidates.least,
            advanced.parents,
            next_tokens,
            state.edits,
            state.log_p,
            state.least,
        )


class FrontierRecord:
    """Banked nodes of one window and the beams above them, collected step by step as arrays."""

    def __init__(self, initial: NDArray[np.int16]) -> None:
        """`initial`: the viability state of the empty continuation."""
        nothing = np.zeros(1, dtype=np.int64)
        self._steps: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int16]]]
        self._steps = [(nothing, nothing, initial[None])]  # parents, tokens and edits of the beams of each step
        self._evaluated = [0]  # of these beams, how many come before the verbatim one
        self._first = 0  # place of the first living beam among all beams
        none = nothing[:0]
        self._nodes: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int16]]]
        self._nodes = [(none, none, none.astype(np.float64), none.astype(np.int16))]

    @property
    def _living(self) -> int:
        return len(self._steps[-1][0])

    def step(self, banked: list[NDArray[Any]], place: int, *, beams: int, evaluated: int) -> None:
        """A step of the window at this place (the fields of `Banked`), after which this many beams live."""
        log_p, tokens, least, parents, next_tokens, next_edits, *_ = (array[place] for array in banked)
        (where,) = np.nonzero(log_p > -math.inf)
        kept = len(log_p) // len(parents)
        self._nodes.append((self._first + where // kept, tokens[where], log_p[where], least[where]))
        first = self._first + self._living
        self._steps.append((self._first + parents[:beams], next_tokens[:beams].copy(), next_edits[:beams].copy()))
        self._evaluated.append(evaluated)
        self._first = first

    def leave(self, log_p: NDArray[np.float64], least: NDArray[np.int16]) -> None:
        """The search stops here: its living beams are open nodes."""
        parents, tokens, _ = self._steps.pop()
        self._evaluated.pop()
        self._nodes.append((parents, tokens, log_p, least))

    def close(self, *, is_exact: bool) -> Frontier:
        """`is_exact`: whether edits are those of the exact viability rule, and so of use to others."""
        parents, tokens, log_p, least = map(np.concatenate, zip(*self._nodes, strict=True))
        edits = Edits(np.concatenate([edits for _, _, edits in self._steps]), least) if is_exact else None
        return Frontier(self._beams(), parents, tokens, log_p, edits)

    def _beams(self) -> Beams:
        counts = [len(parents) for parents, _, _ in self._steps]
        parents, tokens, _ = map(np.concatenate, zip(*self._steps, strict=True))
        return Beams(parents, tokens, np.repeat(np.arange(len(counts)), counts))

    def entries(self, *, prefix_tokens: int, chain_tokens: int) -> NDArray[np.int64]:
        """Where the states of all beams are: on the chain or, in the order in which they were evaluated, after it."""
        places: list[NDArray[np.int64]] = []
        free = chain_tokens
        for depth, ((parents, _, _), evaluated) in enumerate(zip(self._steps, self._evaluated, strict=True)):
            own = np.full(len(parents), prefix_tokens + depth - 1)
            own[:evaluated] = np.arange(free, free + evaluated)
            free += evaluated
            places.append(own)
        return np.concatenate(places)
