"""The frontier: viable partial continuations the search did not follow, kept as arrays until somebody asks.

With it can come what the model computed for the nodes above it, so that whoever goes on need not compute it again.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rote.models.base import Stored
from rote.search.chain import TokenPair


@dataclass(frozen=True, slots=True)
class FrontierNode:
    """A viable partial continuation that the search did not follow. Its probability mass is in the upper bound."""

    token_ids: tuple[int, ...]
    log_p: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """Nodes in falling probability. Node i has `depths[i]` tokens: `paths[i, :depths[i]]`."""

    log_p: NDArray[np.float64]  # [nodes]
    depths: NDArray[np.int64]  # [nodes]
    paths: NDArray[np.int64]  # [nodes, longest]

    def __len__(self) -> int:
        return len(self.log_p)

    def __iter__(self) -> Iterator[FrontierNode]:
        return (self.node(place) for place in range(len(self)))

    def node(self, place: int) -> FrontierNode:
        return FrontierNode(
            tuple(self.paths[place, : self.depths[place]].tolist()),
            float(self.log_p[place]),
        )

    @property
    def mass(self) -> float:
        return float(np.exp(self.log_p).sum())

    @classmethod
    def of(cls, nodes: Iterable[FrontierNode]) -> "Frontier":
        ordered = sorted(nodes, key=lambda node: (-node.log_p, node.token_ids))
        longest = max((len(node.token_ids) for node in ordered), default=0)
        paths = np.zeros((len(ordered), longest), dtype=np.int64)
        for row, node in enumerate(ordered):
            paths[row, : len(node.token_ids)] = node.token_ids
        return cls(
            np.array([node.log_p for node in ordered], dtype=np.float64),
            np.array([len(node.token_ids) for node in ordered], dtype=np.int64),
            paths,
        )


@dataclass(frozen=True, slots=True)
class SearchedStates:
    """What the model computed during a search: the chain, then every beam that was continued, step by step."""

    pair: TokenPair
    beams: tuple[NDArray[np.int64], ...]
    """Paths of the beams evaluated at each step, the verbatim one left out. [beams, tokens so far]"""
    stored: Stored
    """In the same order: one entry per token of the chain, then one per beam."""

    def __len__(self) -> int:
        return len(self.pair.chain) + sum(len(paths) for paths in self.beams)

    @property
    def prefix_tokens(self) -> int:
        return len(self.pair.prefix_ids)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensors in self.stored.values() for tensor in tensors)

    def paths(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Entry and path of every node of the chain and of every beam, ancestors first."""
        target = self.pair.suffix_ids
        verbatim = (target[:depth] for depth in range(1, len(target)))
        beams = (tuple(path) for paths in self.beams for path in paths.tolist())
        return enumerate(itertools.chain(verbatim, beams), self.prefix_tokens)
