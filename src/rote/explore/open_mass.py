"""The open mass of one window: disjoint partial continuations whose probability is neither accepted nor refuted.

    mass within the budget  =  accepted  +  Σ over open nodes of their share that ends in the ball

Whatever is expanded, closed or sampled works on this pool. Expanding a node replaces it by its viable children: what is
accepted rises, accepted + open falls, and both always enclose the truth.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.distance import make_viability
from rote.explore.trie import Answer, Path
from rote.search.base import ByLeast
from rote.search.frontier import Frontier
from rote.types import Bounds, Continuation, DistanceName


class Children(NamedTuple):
    """What becomes of every child of some nodes."""

    states: NDArray[np.int16]  # [nodes, kept, width]
    least: NDArray[np.int16]  # [nodes, kept]: the least final distance; the distance itself at the last token
    is_open: NDArray[np.bool_]  # [nodes, kept]: shorter than T, not ended by EOS (viable or not)
    is_viable: NDArray[np.bool_]  # [nodes, kept]: has probability and a completion within the budget


class Ball:
    """The continuations of one window that count: exactly T tokens, within `budget` edits of the target.

    Viability is always exact, whatever rule the search used; the baseline's ball is Levenshtein's.
    """

    def __init__(
        self, suffix_ids: Path, *, distance: DistanceName, budget: int, eos_ids: frozenset[int] = frozenset()
    ) -> None:
        self.suffix_ids = suffix_ids
        self.budget = budget
        self.distance: DistanceName = "levenshtein" if distance == "none" else distance
        self._viability = make_viability(self.distance, budget=budget, rule="exact")
        self._padded = self._viability.pad([suffix_ids], len(suffix_ids), torch.device("cpu"))
        self.eos_ids = eos_ids
        self._eos = np.array(sorted(eos_ids), dtype=np.int64)

    @property
    def length(self) -> int:
        return len(self.suffix_ids)

    def root_state(self) -> NDArray[np.int16]:
        state: NDArray[np.int16] = self._viability.initial(torch.device("cpu")).numpy()
        return state

    def states_of(
        self, paths: NDArray[np.int64], depths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """State and least final distance of each path `paths[i, :depths[i]]`."""
        states = np.broadcast_to(self.root_state(), (len(paths), self._viability.width)).copy()
        least = np.zeros(len(paths), dtype=np.int16)
        for step in range(1, paths.shape[1] + 1):
            (rows,) = np.nonzero(depths >= step)
            advanced = self._advance(states[rows], paths[rows, step - 1, None], np.full(len(rows), step))
            states[rows], least[rows] = advanced[0][:, 0], advanced[1][:, 0]
        return states, least

    def has_one_completion(self, states: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Whether the target's tail is the only completion in the ball: no edit is left, and all were spent on the
        diagonal. States are those of viable nodes of fewer than T tokens."""
        middle = states.shape[1] // 2
        needed = states + np.abs(np.arange(states.shape[1]) - middle)  # cell (t, j): D[t, j] + |j − t|
        off_diagonal = np.delete(needed, middle, axis=1)
        is_only: NDArray[np.bool_] = (needed[:, middle] == self.budget) & (off_diagonal > self.budget).all(1)
        return is_only

    def children(self, states: NDArray[np.int16], depths: NDArray[np.int64], answer: Answer) -> Children:
        """Append every listed token to nodes with these states and depths."""
        after, least = self._advance(states, answer.token_ids, depths + 1)
        is_last = (depths + 1 == self.length)[:, None]
        is_possible = answer.log_probs > -np.inf
        goes_on = is_possible & ~np.isin(answer.token_ids, self._eos)
        is_viable = (least <= self.budget) & np.where(is_last, is_possible, goes_on)
        return Children(after, least, goes_on & ~is_last, is_viable)

    def _advance(
        self, states: NDArray[np.int16], tokens: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        count = len(states)
        if count == 0:
            width = tokens.shape[1]
            return np.zeros((0, width, states.shape[1]), np.int16), np.zeros((0, width), np.int16)
        advanced = self._viability.advance(
            torch.from_numpy(np.ascontiguousarray(states))[:, None],
            torch.from_numpy(np.ascontiguousarray(tokens))[:, None],
            padded=self._padded.expand(count, -1),
            step=torch.from_numpy(np.asarray(steps, dtype=np.int64)),
            length=torch.full((count,), self.length),
        )
        return _array(advanced.state)[:, 0], _array(advanced.least)[:, 0]


def _array(tensor: Tensor) -> NDArray[np.int16]:
    values: NDArray[np.int16] = tensor.to(torch.int16).numpy()
    return values


class OpenMass:
    """Open nodes by number, in the order in which they came. Closed ones keep their number."""

    def __init__(
        self, ball: Ball, frontier: Frontier, *, accepted: Sequence[float], unlisted: ByLeast = (), keep: int = 0
    ) -> None:
        """`accepted[e]`: mass found within e edits. `unlisted`: mass of children the search did not list, by their
        least final distance; it can be neither explored nor refuted and stays in the upper bounds."""
        self.ball = ball
        self.accepted = np.diff(np.asarray(accepted, dtype=np.float64), prepend=0.0)  # by exact distance
        self._unlisted = np.asarray(unlisted or (0.0,) * (ball.budget + 1), dtype=np.float64)
        self.found: list[Continuation] = []
        self._keep = keep
        self._frontier = frontier
        self._parents: list[Path] = []
        states, least = ball.states_of(frontier.paths, frontier.depths)
        self.size = len(frontier)
        self.log_p = frontier.log_p.astype(np.float64)
        self.mass = np.exp(self.log_p)
        self.depths = frontier.depths.astype(np.int64)
        self.least = least
        self.states = states
        self._origin = np.full(self.size, -1, dtype=np.int64)  # place of the parent's path in `_parents`
        self._tokens = np.zeros(self.size, dtype=np.int64)
        self.is_open = self.least <= ball.budget
        self._upper = np.ones(ball.budget + 1)

    def path(self, node: int) -> Path:
        if self._origin[node] < 0:
            return tuple(self._frontier.paths[node, : self.depths[node]].tolist())
        return (*self._parents[self._origin[node]], int(self._tokens[node]))

    def families(self, nodes: NDArray[np.int64]) -> tuple[list[Path], NDArray[np.int64]]:
        """The paths of the nodes' parents, each once, and for every node which of them is its own."""
        numbers: dict[Path | int, int] = {}
        places = np.empty(len(nodes), dtype=np.int64)
        for place, (node, origin) in enumerate(zip(nodes.tolist(), self._origin[nodes].tolist(), strict=True)):
            parent = origin if origin >= 0 else tuple(self._frontier.paths[node, : self.depths[node] - 1].tolist())
            places[place] = numbers.setdefault(parent, len(numbers))
        return [self._parents[parent] if isinstance(parent, int) else parent for parent in numbers], places

    def open_nodes(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.is_open[: self.size])

    @property
    def open_mass(self) -> float:
        return float(self.mass[: self.size][self.is_open[: self.size]].sum())

    @property
    def unlisted(self) -> float:
        return float(self._unlisted.sum())

    @property
    def lower(self) -> float:
        return float(self.accepted.sum())

    def bounds(self) -> Bounds:
        """Certified now. Upper bounds never rise, not even by rounding."""
        lower, nodes = np.minimum(1.0, np.cumsum(self.accepted)), self.open_nodes()
        by_least = np.bincount(self.least[nodes], weights=self.mass[nodes], minlength=self.ball.budget + 1)
        reachable = np.cumsum(by_least + self._unlisted)
        self._upper = np.maximum(lower, np.minimum(self._upper, lower + reachable))
        return Bounds(tuple(lower.tolist()), tuple(self._upper.tolist()))

    def expand(self, nodes: NDArray[np.int64], answer: Answer) -> NDArray[np.int64]:
        """Replace nodes by their viable children; those of T tokens are accepted. The numbers of the new nodes."""
        children = self.ball.children(self.states[nodes], self.depths[nodes], answer)
        log_p = self.log_p[nodes, None] + answer.log_probs
        self.is_open[nodes] = False
        is_final = self.depths[nodes] + 1 == self.ball.length
        self._accept(nodes, answer, log_p, children, is_final)
        rows, places = np.nonzero(children.is_viable & ~is_final[:, None])
        first, count = self.size, len(rows)
        self._reserve(first + count)
        new = np.arange(first, first + count)
        paths = {row: self._remember(self.path(int(nodes[row]))) for row in np.unique(rows).tolist()}
        self.log_p[new] = log_p[rows, places]
        self.mass[new] = np.exp(self.log_p[new])
        self.depths[new] = self.depths[nodes[rows]] + 1
        self.least[new] = children.least[rows, places]
        self.states[new] = children.states[rows, places]
        self._origin[new] = [paths[row] for row in rows.tolist()]
        self._tokens[new] = answer.token_ids[rows, places]
        self.is_open[new] = True
        self.size = first + count
        return new

    def settle(self, node: int, *, log_p: float) -> None:
        """The node's one viable completion has this probability, at the whole budget; the rest of it is refuted."""
        self.is_open[node] = False
        self.accepted[self.ball.budget] += np.exp(log_p)

    def note(self, continuation: Continuation) -> None:
        """Keep an accepted continuation if it is among the heaviest."""
        self.found.append(continuation)
        if len(self.found) > 2 * self._keep:
            self.found = sorted(self.found, key=lambda found: -found.log_p)[: self._keep]

    def _accept(
        self,
        nodes: NDArray[np.int64],
        answer: Answer,
        log_p: NDArray[np.float64],
        children: Children,
        is_final: NDArray[np.bool_],
    ) -> None:
        rows, places = np.nonzero(children.is_viable & is_final[:, None])
        distances = children.least[rows, places]
        np.add.at(self.accepted, distances, np.exp(log_p[rows, places]))
        for row, place, distance in zip(rows.tolist(), places.tolist(), distances.tolist(), strict=True):
            path = (*self.path(int(nodes[row])), int(answer.token_ids[row, place]))
            self.note(Continuation(path, float(log_p[row, place]), distance))

    def _remember(self, path: Path) -> int:
        self._parents.append(path)
        return len(self._parents) - 1

    def _reserve(self, size: int) -> None:
        capacity = len(self.log_p)
        if size <= capacity:
            return
        more = max(size, 2 * capacity) - capacity
        for name in ("log_p", "mass", "depths", "least", "states", "_origin", "_tokens", "is_open"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((more, *old.shape[1:]), dtype=old.dtype)]))
