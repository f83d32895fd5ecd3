"""One window's evaluated nodes as a trie, and the contract between a window's wishes and whoever meets them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rote.search.frontier import SearchedStates

Path = tuple[int, ...]

WIDE = 1024
"""Answers listing more tokens than this are not remembered once given; asking again costs an evaluation."""
ENTRY_STEP = 32
"""Memory in use is rounded up to this many entries, so that shapes repeat."""


class Request(NamedTuple):
    """Paths to know the next tokens of. With `most_evals`, only as many leading paths as this many evaluations buy."""

    paths: Sequence[Path]
    most_evals: int | None = None


class Answer(NamedTuple):
    """Next tokens under the policy for the leading paths of a request; all of them unless the evaluations ran out."""

    token_ids: NDArray[np.int64]  # [paths, kept]
    log_probs: NDArray[np.float64]  # [paths, kept]; −inf in unused places
    token_evals: int
    """Query positions evaluated for this answer: the prefix when it is the window's first, ancestors, the paths."""


Result = TypeVar("Result")
Exploration = Generator[Request, Answer, Result]
"""One window's wishes: yields requests, receives answers, returns its result."""


@dataclass(frozen=True, slots=True)
class ExploreTask(Generic[Result]):
    """A window to explore. `key` comes back with the result."""

    key: int
    prefix_ids: Path
    exploration: Exploration[Result]
    states: SearchedStates | None = None
    """What a search has computed of this window; it need not be computed again."""
    name: str = ""
    """What to call the window when something is wrong with it."""


def rounded(entries: int) -> int:
    return -(-entries // ENTRY_STEP) * ENTRY_STEP


class TrieNode:
    """A path of a window's trie. It has an entry while its state is in the session's memory."""

    __slots__ = ("children", "depth", "entry", "is_wanted", "known", "last_used", "parent", "token")

    def __init__(self, parent: "TrieNode | None", token: int) -> None:
        self.parent = parent
        self.token = token
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[int, TrieNode] = {}
        self.entry: int | None = None
        self.known: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
        self.is_wanted = False
        self.last_used = 0

    def lineage(self) -> list[int]:
        """Entries of this node and its ancestors, the prefix left out."""
        entries = []
        node = self
        while node.parent is not None:
            assert node.entry is not None, "an ancestor was forgotten while it was needed"
            entries.append(node.entry)
            node = node.parent
        return entries


class View(NamedTuple):
    """The part of a window's memory that some nodes look at."""

    entries: NDArray[np.int64]  # [entries], ascending
    sees: NDArray[np.bool_]  # [nodes, entries]: each node its prefix, its ancestors and itself


@dataclass(slots=True)
class WindowTrie(Generic[Result]):
    """One window in flight: its generator, its trie, and what is still to be evaluated for its current request."""

    task: ExploreTask[Result]
    capacity: int
    root: TrieNode = field(default_factory=lambda: TrieNode(None, -1))
    is_prefilled: bool = False
    entry_positions: NDArray[np.int64] = field(init=False)
    reach: int = field(init=False)
    _free: list[int] = field(init=False)
    _held: list[TrieNode] = field(default_factory=list)
    _asked: list[TrieNode] = field(default_factory=list)
    _waiting: list[Path] = field(default_factory=list)
    _missing: list[TrieNode] = field(default_factory=list)
    _most_evals: int | None = None
    _evals: int = 0
    _clock: int = 0
    _outcome: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        length = len(self.task.prefix_ids)
        self.reach = length
        self.entry_positions = np.arange(rounded(self.capacity), dtype=np.int64)
        self._free = list(range(self.capacity - 1, length - 1, -1))
        if self.states is not None:
            self._remember(self.states)

    @property
    def states(self) -> SearchedStates | None:
        """What the slot begins with; nothing if it would fill most of its memory."""
        states = self.task.states
        return states if states is not None and len(states) <= self.capacity // 2 else None

    def _remember(self, states: SearchedStates) -> None:
        for entry, path in states.paths():
            node = self._walk(path)
            node.entry = entry
            self.entry_positions[entry] = len(self.task.prefix_ids) + node.depth - 1
            self._held.append(node)
        self.reach = len(states)
        self._free = list(range(self.capacity - 1, self.reach - 1, -1))
        self.is_prefilled = True

    def start(self) -> bool:
        """Fetch the first request; whether the window needs the model at all."""
        try:
            self._plan(next(self.task.exploration))
        except StopIteration as end:
            self._outcome.append(end.value)
            return False
        return self.answer()

    def take(self, count: int) -> list[TrieNode]:
        """The next nodes to evaluate, ancestors before descendants, each with an entry of its own."""
        chosen, self._missing = self._missing[:count], self._missing[count:]
        self._make_room(sum(node.entry is None for node in chosen))
        for node in chosen:
            if node.entry is not None:
                continue  # evaluated before as an ancestor, and now its own answer is wanted
            node.entry = self._free.pop()
            self.entry_positions[node.entry] = len(self.task.prefix_ids) + node.depth - 1
            self.reach = max(self.reach, node.entry + 1)
            self._held.append(node)
        return chosen

    def view(self, nodes: list[TrieNode]) -> View:
        prefix = len(self.task.prefix_ids) if nodes else 0
        lineages = [node.lineage() for node in nodes]
        own = np.array([entry for lineage in lineages for entry in lineage], dtype=np.int64)
        entries, places = np.unique(np.concatenate([np.arange(prefix), own]), return_inverse=True)
        sees = np.zeros((len(nodes), len(entries)), dtype=np.bool_)
        sees[:, :prefix] = True  # the lowest entries
        sees[np.repeat(np.arange(len(nodes)), [len(lineage) for lineage in lineages]), places[prefix:]] = True
        return View(entries, sees)

    def answer(self) -> bool:
        """Once everything asked is evaluated, hand it over and take the next request. False when the window ended."""
        while not self._missing and (self.is_prefilled or not self._asked):
            if self._waiting:
                self._plan_piece()
                continue
            try:
                self._plan(self.task.exploration.send(self._collect()))
            except StopIteration as end:
                self._outcome.append(end.value)
                return False
        return True

    def _collect(self) -> Answer:
        rows = [node.known for node in self._asked if node.known is not None]
        assert len(rows) == len(self._asked), "an evaluated node has no answer"
        width = 0 if not rows else len(rows[0][0])
        answer = Answer(
            np.array([token_ids for token_ids, _ in rows], dtype=np.int64).reshape(len(rows), width),
            np.array([log_probs for _, log_probs in rows], dtype=np.float64).reshape(len(rows), width),
            # A budget too small for the prefix and one path buys nothing, not even the prefix.
            self._evals if self._asked else 0,
        )
        if width > WIDE:
            for node in self._asked:
                node.known = None if node.parent is not None else node.known
        return answer

    def result(self) -> Result:
        return self._outcome[0]

    def _plan(self, request: Request) -> None:
        if self.root.known is None and () in request.paths:
            self.is_prefilled = False  # a search keeps the prefix's states, not what it said next
        self._asked, self._evals = [], 0 if self.is_prefilled else len(self.task.prefix_ids)
        self._waiting, self._most_evals = list(request.paths[::-1]), request.most_evals
        self._plan_piece()

    def _plan_piece(self) -> None:
        """What the next paths of the request need that is not in memory, ancestors first; at most half the memory."""
        self._clock += 1
        self._missing, in_use = [], 0
        planned: set[int] = set()
        while self._waiting and in_use + len(self._waiting[-1]) <= self.capacity // 2:
            node = self._walk(self._waiting[-1])
            lacking = [] if node.known is not None else _lacking(node, planned)
            if self._most_evals is not None and self._evals + len(lacking) > self._most_evals:
                self._waiting.clear()
                break
            self._waiting.pop()
            node.is_wanted = node.known is None
            planned |= {id(missing) for missing in lacking}
            self._missing += lacking
            self._evals += len(lacking)
            self._asked.append(node)
            in_use += self._touch(node)

    def _walk(self, path: Path) -> TrieNode:
        node = self.root
        for token in path:
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = TrieNode(node, token)
            node = child
        return node

    def _touch(self, node: TrieNode) -> int:
        """Ancestors are used whenever a descendant is, so they are never forgotten before it. How many were idle."""
        touched = 0
        walker: TrieNode | None = node
        while walker is not None and walker.last_used != self._clock:
            walker.last_used = self._clock
            walker = walker.parent
            touched += 1
        return touched

    def _make_room(self, count: int) -> None:
        if len(self._free) >= count:
            return
        self._held.sort(key=lambda node: (node.last_used, -node.depth))
        goal = max(count, self.capacity // 2)
        kept_from = 0
        for node in self._held:
            if len(self._free) >= goal or node.last_used == self._clock:
                break
            assert node.entry is not None
            self._free.append(node.entry)
            node.entry = None
            kept_from += 1
        del self._held[:kept_from]
        assert len(self._free) >= count, "a piece of a request must fit into half the memory"
        self._free.sort(reverse=True)
        self.reach = max([len(self.task.prefix_ids), *((node.entry or 0) + 1 for node in self._held)])


def _lacking(node: TrieNode, planned: set[int]) -> list[TrieNode]:
    """What must be evaluated to know the node's next tokens, ancestors first: itself and ancestors without an entry."""
    if node.parent is None or id(node) in planned:
        return []
    lacking = [node]
    walker = node.parent
    while walker.parent is not None and walker.entry is None and id(walker) not in planned:
        lacking.append(walker)
        walker = walker.parent
    return lacking[::-1]
