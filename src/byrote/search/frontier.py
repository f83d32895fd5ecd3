"""The frontier: viable partial continuations the search did not follow, kept as arrays until somebody asks.

They hang below the beams the search did follow: together both are a tree. With them can come what the model computed
for the beams, so that whoever goes on need not compute it again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.models.base import Stored


class Beams(NamedTuple):
    """Every node the search followed, parents before children. The first is the empty one, its own parent."""

    parents: NDArray[np.int64]  # [beams]
    tokens: NDArray[np.int64]  # [beams]
    depths: NDArray[np.int64]  # [beams]

    def path(self, beam: int) -> tuple[int, ...]:
        tokens: list[int] = []
        while beam:
            tokens.append(int(self.tokens[beam]))
            beam = int(self.parents[beam])
        return tuple(reversed(tokens))


class Edits(NamedTuple):
    """Where beams and nodes stand under the exact viability rule, if that is what the search used."""

    beams: NDArray[np.int16]  # [beams, width]
    least: NDArray[np.int16]  # [nodes]


@dataclass(frozen=True, slots=True)
class FrontierNode:
    """A viable partial continuation that the search did not follow. Its probability mass is in the upper bound."""

    token_ids: tuple[int, ...]
    log_p: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """Node i is one token, `tokens[i]`, below beam `parents[i]`."""

    beams: Beams
    parents: NDArray[np.int64]  # [nodes]
    tokens: NDArray[np.int64]  # [nodes]
    log_p: NDArray[np.float64]  # [nodes]
    edits: Edits | None = None

    def __len__(self) -> int:
        return len(self.log_p)

    def __iter__(self) -> Iterator[FrontierNode]:
        return (self.node(place) for place in range(len(self)))

    def node(self, place: int) -> FrontierNode:
        above = self.beams.path(int(self.parents[place]))
        return FrontierNode((*above, int(self.tokens[place])), float(self.log_p[place]))

    @property
    def mass(self) -> float:
        return float(np.exp(self.log_p).sum())

    @classmethod
    def of(cls, nodes: Iterable[FrontierNode]) -> "Frontier":
        """The frontier that these nodes are, and the beams above them."""
        ordered = sorted(nodes, key=lambda node: (-node.log_p, node.token_ids))
        above = {node.token_ids[:depth] for node in ordered for depth in range(len(node.token_ids))}
        beams = sorted(above | {()}, key=lambda path: (len(path), path))
        places = {path: place for place, path in enumerate(beams)}
        return cls(
            Beams(
                np.array([places[path[:-1]] for path in beams], dtype=np.int64),
                np.array([path[-1] if path else 0 for path in beams], dtype=np.int64),
                np.array([len(path) for path in beams], dtype=np.int64),
            ),
            np.array([places[node.token_ids[:-1]] for node in ordered], dtype=np.int64),
            np.array([node.token_ids[-1] for node in ordered], dtype=np.int64),
            np.array([node.log_p for node in ordered], dtype=np.float64),
        )


@dataclass(frozen=True, slots=True)
class SearchedStates:
    """What the model computed during a search: the chain, then every beam that was continued, step by step."""

    beams: Beams
    entries: NDArray[np.int64]
    """Where each beam's state is in `stored`; the empty one's is that of the last prefix token. [beams]"""
    stored: Stored
    """One entry per token of the chain, then one per beam that is not on it, as they were evaluated."""

    def __len__(self) -> int:
        return next((tensor.shape[1] for tensors in self.stored.values() for tensor in tensors), 0)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensors in self.stored.values() for tensor in tensors)
