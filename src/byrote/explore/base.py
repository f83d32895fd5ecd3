"""The contract of an exploration: a generator per window that requests nodes and receives what follows them.

`Explorer` runs the generators of many windows and evaluates their nodes together. The answer to a request does not
depend on the other windows, so neither does the result.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from byrote.explore.tree import Tree
from byrote.search.frontier import SearchedStates


class NodeRequest(NamedTuple):
    """Nodes whose next tokens are needed; with `most_evals`, as many leading ones as that many evaluations buy."""

    tree: Tree
    nodes: NDArray[np.int64]
    most_evals: int | None = None


class NodeAnswer(NamedTuple):
    """Children of the leading nodes of a request; of all of them unless the evaluations ran out."""

    token_ids: NDArray[np.int64]  # [nodes, kept]
    log_probs: NDArray[np.float64]  # [nodes, kept]; −inf in unused places
    # [nodes, kept]: least final distance, the distance itself at T tokens; ENDED if impossible
    least: NDArray[np.int16]
    is_final: NDArray[np.bool_]
    """[nodes, kept]: whether a child is a whole answer."""
    token_evals: int
    """Query positions evaluated for this answer: the prefix when it is the window's first, ancestors, the nodes."""


Result = TypeVar("Result")
Exploration = Generator[NodeRequest, NodeAnswer, Result]
"""Yields requests, receives answers, returns the result of its window."""


@dataclass(frozen=True, slots=True)
class ExploreTask(Generic[Result]):
    """A window to explore. `key` comes back with the result."""

    key: int
    prefix_ids: tuple[int, ...]
    exploration: Exploration[Result]
    states: SearchedStates | None = None
    """What a search has computed for this window; it is not computed again."""
    name: str = ""
    """Names the window in error messages."""
