"""The contract of the room: what a window's exploration asks for, what it is answered, and where its nodes are.

An exploration is a generator, one for each window: it yields requests for nodes of the window's tree, receives what
follows them, and returns its result. Whoever runs it evaluates the nodes of many windows together. What a window is
answered does not depend on its company, so its result does not either.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from byrote.explore.tree import Tree
from byrote.search.frontier import SearchedStates


class Request(NamedTuple):
    """Nodes to know the next tokens of. With `most_evals`, only as many leading nodes as this many evaluations buy."""

    tree: Tree
    nodes: NDArray[np.int64]
    most_evals: int | None = None


class Answer(NamedTuple):
    """Children of the leading nodes of a request; of all of them unless the evaluations ran out."""

    token_ids: NDArray[np.int64]  # [nodes, kept]
    log_probs: NDArray[np.float64]  # [nodes, kept]; −inf in unused places
    least: NDArray[
        np.int16
    ]  # [nodes, kept]: least final distance, the distance itself at T tokens; ENDED if impossible
    token_evals: int
    """Query positions evaluated for this answer: the prefix when it is the window's first, ancestors, the nodes."""


Result = TypeVar("Result")
Exploration = Generator[Request, Answer, Result]
"""One window's wishes: yields requests, receives answers, returns its result."""


def begun(exploration: Exploration[Result]) -> Exploration[Result]:
    """The same exploration, its first request made now instead of when it is asked for."""
    try:
        request = next(exploration)
    except StopIteration as end:
        return _ended(end.value)
    return _going_on(request, exploration)


def _ended(result: Result) -> Exploration[Result]:
    return result
    yield


def _going_on(request: Request, exploration: Exploration[Result]) -> Exploration[Result]:
    while True:
        answer = yield request
        try:
            request = exploration.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ExploreTask(Generic[Result]):
    """A window to explore. `key` comes back with the result."""

    key: int
    prefix_ids: tuple[int, ...]
    exploration: Exploration[Result]
    states: SearchedStates | None = None
    """What a search has computed of this window; it need not be computed again."""
    name: str = ""
    """What to call the window when something is wrong with it."""


class Explored(NamedTuple, Generic[Result]):
    key: int
    result: Result
