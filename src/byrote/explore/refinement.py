"""Open nodes in the order in which expanding them pays, ancestors that must be evaluated again counted.

A ranking needs its best few nodes, again and again, of very many. They are kept in a short list, which holds everything
that any ranking does not put below its floor; the rest waits in arrays that are looked through only when the list runs
out.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.errors import ConfigError
from byrote.explore.base import Exploration, Request
from byrote.explore.open_mass import OpenMass
from byrote.explore.tree import ABSENT, Tree
from byrote.types import Bounds

PATIENCE = 7
"""Turns without an offer after which no ranking has one: no order of turns is longer."""
SHORT = 256
"""Nodes not below the floor of each ranking when a short list has just been made."""
MOST = 1024
"""A longer short list is shortened."""
ROUNDS = 4
"""Choices after which nodes that are gone leave the short list."""


class _Ranked(NamedTuple):
    """Nodes and how high each ranking puts them."""

    nodes: NDArray[np.int64]  # [nodes]
    ranks: NDArray[np.float64]  # [nodes, rankings]

    def where(self, chosen: NDArray[np.bool_]) -> "_Ranked":
        return _Ranked(self.nodes[chosen], self.ranks[chosen])


class RefineQueue:
    """All open nodes of a tree, ranked in one or more ways.

    A node of t tokens, log mass m and r edits left ranks by m + gain[t, r] − log(steps[t] + missing), where `missing`
    is the number of its ancestors that must be evaluated first.
    """

    def __init__(
        self,
        tree: Tree,
        gains: list[NDArray[np.float64]],
        steps: list[NDArray[np.float64]],
        *,
        is_remembered: bool,
    ) -> None:
        """`is_remembered`: the beams above all open nodes will be in memory."""
        self._tree = tree
        shape = (tree.ball.length + 1, tree.ball.budget + 1)
        self._gains = np.stack([np.broadcast_to(gain, shape) for gain in gains], -1)
        self._steps = np.stack(steps, -1)  # [T + 1, rankings]
        self._worth = self._gains - np.log(self._steps)[:, None]  # [T + 1, budget + 1, rankings]
        self._dearest = float(self._steps.max())
        self._missing = None if is_remembered else tree.depths - 1
        self._short: list[_Ranked] = []
        self._rest: list[_Ranked] = []
        self._floors = np.full(len(steps), -np.inf)
        self._gone = 0  # at most so many nodes of the short list are not open any more
        self._fill()

    def add(self, nodes: NDArray[np.int64]) -> None:
        """Nodes that have just been opened below nodes in memory."""
        new = self._ranked(nodes, None)
        is_high = self._is_high(new)
        self._short.append(new.where(is_high))
        self._rest.append(new.where(~is_high))

    def refresh(self) -> None:
        """Look at what is in memory now. Nothing to do while everything the search handed over is, and all since."""
        tree = self._tree
        has_gaps = tree.was_forgotten or int(tree.entries[1 : tree.beams].min(initial=0)) == ABSENT
        if not has_gaps and self._missing is None:
            return
        self._missing = None
        if has_gaps:
            nodes = np.flatnonzero(tree.is_open[: tree.size])
            self._missing = np.zeros(tree.size, dtype=np.int64)
            self._missing[nodes] = tree.missing(nodes)
        self._fill()

    def choose(self, turns: Iterator[int], *, count: int, affordable: int) -> NDArray[np.int64]:
        """Up to `count` nodes, by each ranking in turn the best that pays within what is left of `affordable`.

        A ranking that looks some steps ahead passes over what could not be finished. It offers the first `count` that
        pay to begin with; when none of them does any more, it is passed over itself.
        """
        is_tight = self._missing is not None or affordable < self._dearest + count
        offers = [iter(offered) for offered in self._offers(count, affordable if is_tight else None)]
        chosen: dict[int, None] = {}
        refusals = 0
        while len(chosen) < count and affordable > 0 and refusals < PATIENCE:
            turn = next(turns)
            refusals += 1
            for node in offers[turn]:
                if node not in chosen and not (is_tight and self._price(node, turn) > affordable):
                    chosen[node] = None
                    affordable -= 1 if self._missing is None else 1 + int(self._missing[node])
                    refusals = 0
                    break
        self._gone += len(chosen)
        return np.fromiter(chosen, dtype=np.int64, count=len(chosen))

    def _offers(self, count: int, affordable: int | None) -> list[list[int]]:
        """The first nodes of each ranking, the best first; of those that pay, where there is little to spend."""
        if self._gone > ROUNDS * count:
            self._short, self._gone = [self._living(self._short)], 0
        short = _joined(self._short)
        offered = int(np.count_nonzero(short.ranks >= self._floors, axis=0).min())
        if offered < count + self._gone:
            short = self._shorten(self._living([short, *self._rest]), [], at_least=count)
        elif len(short.nodes) > MOST:
            short = self._shorten(self._living([short]), self._rest, at_least=count)
        self._short = [short]
        turns = range(len(self._floors))
        if affordable is None:
            return [self._first(short, turn, count) for turn in turns]
        return [self._first_paying(short, turn, count, affordable) for turn in turns]

    def _first_paying(self, short: _Ranked, turn: int, count: int, affordable: int) -> list[int]:
        paying = self._paying(short, turn, affordable)
        if np.count_nonzero(paying.ranks[:, turn] >= self._floors[turn]) < count + self._gone:
            paying = self._paying(_joined([short, *self._rest]), turn, affordable)
        return self._first(paying, turn, count)

    def _first(self, ranked: _Ranked, turn: int, count: int) -> list[int]:
        nodes, ranks, enough = ranked.nodes, -ranked.ranks[:, turn], count + self._gone
        if len(nodes) > enough:
            first = np.argpartition(ranks, enough)[:enough]
            nodes, ranks = nodes[first], ranks[first]
        nodes = nodes[np.lexsort((nodes, ranks))]  # equal ranks: first come, first served
        best: list[int] = nodes[self._tree.is_open[nodes]][:count].tolist()
        return best

    def _paying(self, ranked: _Ranked, turn: int, affordable: int) -> _Ranked:
        prices = self._steps[self._tree.depths[ranked.nodes], turn]
        return ranked.where((prices if self._missing is None else prices + self._missing[ranked.nodes]) <= affordable)

    def _price(self, node: int, turn: int) -> float:
        steps = float(self._steps[self._tree.depths[node], turn])
        return steps if self._missing is None else steps + int(self._missing[node])

    def _fill(self) -> None:
        """Begin afresh with all open nodes."""
        nodes = np.flatnonzero(self._tree.is_open[: self._tree.size])
        self._short = [self._shorten(self._ranked(nodes, self._missing), [])]

    def _ranked(self, nodes: NDArray[np.int64], missing: NDArray[np.int64] | None) -> _Ranked:
        tree = self._tree
        depths, left = tree.depths[nodes], tree.ball.budget - tree.least[nodes]
        worth = self._worth[depths, left]
        if missing is not None:
            worth = self._gains[depths, left] - np.log(self._steps[depths] + missing[nodes][:, None])
        return _Ranked(nodes, tree.log_p[nodes][:, None] + worth)

    def _is_high(self, ranked: _Ranked) -> NDArray[np.bool_]:
        high: NDArray[np.bool_] = np.any(ranked.ranks >= self._floors, axis=-1)
        return high

    def _living(self, parts: list[_Ranked]) -> _Ranked:
        joined = _joined(parts)
        return joined.where(self._tree.is_open[joined.nodes])

    def _shorten(self, ranked: _Ranked, rest: list[_Ranked], *, at_least: int = 0) -> _Ranked:
        """Set the floors so that a short list of these has enough nodes of every ranking, and everything in `rest` is
        below them; the list."""
        self._gone = 0
        self._floors, self._rest = np.full(ranked.ranks.shape[1], -np.inf), rest
        size = max(SHORT, at_least)
        if len(ranked.nodes) <= size:
            return ranked
        self._floors = -np.partition(-ranked.ranks, size - 1, axis=0)[size - 1]
        is_high = self._is_high(ranked)
        self._rest = [*rest, ranked.where(~is_high)]
        return ranked.where(is_high)


def _joined(parts: list[_Ranked]) -> _Ranked:
    if len(parts) == 1:
        return parts[0]
    return _Ranked(np.concatenate([part.nodes for part in parts]), np.concatenate([part.ranks for part in parts]))


OrderName = Literal["mass", "tail", "width", "both"]
WIDTH, TAIL, MASS = 0, 1, 2
TURNS: dict[OrderName, tuple[int, ...]] = {
    "mass": (MASS,),
    "tail": (TAIL,),
    "width": (WIDTH,),
    "both": (WIDTH, TAIL, MASS),
}
TURNS_IF_LOOSELY_FOLLOWED = (WIDTH, TAIL, MASS, WIDTH, TAIL, WIDTH, MASS)
LOOSELY, HARDLY = 0.3, 0.001
"""Of the upper bound: below these shares of it, the lower bound says how well the model follows the target."""
HARD_PLACE = 0.2
"""A target token less probable than this counts as if it had this probability."""
BATCH = 16
"""Nodes expanded between two looks at the bounds. With more, forwards are larger and choices worse: 60 cost a tenth of
the gain of some lower bounds at five times the default search; fewer gain little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineOptions:
    """When to stop and what to expand first. None switches a stop rule off."""

    token_evals: int
    """Never spend more than this."""
    gap: float | None
    """Stop when upper − lower is at most this, at the whole budget."""
    threshold: float | None
    """Stop when the verdict at this τ is decided."""
    order: OrderName
    """What to expand first: `mass` for the upper bound, `tail` and `width` for the lower, `both` for both in turn."""

    def __post_init__(self) -> None:
        if self.token_evals < 0:
            raise ConfigError(f"refine is {self.token_evals}; it must be 0 or more token evaluations.")


@dataclass(frozen=True, slots=True)
class Refined:
    """Bounds after refinement and what they cost."""

    bounds: Bounds
    token_evals: int
    expanded: int
    is_exhausted: bool
    """Nothing is left open: lower and upper bound are the mass itself, up to what the search did not list."""


def refine(
    pool: OpenMass,
    options: RefineOptions,
    *,
    target_probs: Sequence[float] | None = None,
    is_remembered: bool = False,
    watch: Callable[[Bounds, int], None] | None = None,
) -> Exploration[Refined]:
    """Expand open nodes of the pool until a stop rule speaks. `watch` sees the bounds and the cost at every step.

    Without `target_probs` every target token is taken to have an even chance. `is_remembered`: the ancestors of all
    nodes that are open now are in memory, because the search handed over what it had computed.
    """
    spent, expanded = 0, 0
    bounds = pool.bounds()
    rankings = _rankings(pool, target_probs, room_in_tail=2 if bounds.lower[-1] < HARDLY * bounds.upper[-1] else 1)
    is_loose = options.order == "both" and bounds.lower[-1] < LOOSELY * bounds.upper[-1]
    turns = itertools.cycle(TURNS_IF_LOOSELY_FOLLOWED if is_loose else TURNS[options.order])
    queue = RefineQueue(pool.tree, *rankings, is_remembered=is_remembered)
    while not _is_done(*pool.span(), options):
        chosen = queue.choose(turns, count=BATCH, affordable=options.token_evals - spent)
        if len(chosen) == 0:
            break
        answer = yield Request(pool.tree, chosen, options.token_evals - spent)
        count = len(answer.token_ids)
        if count == 0:
            break
        spent += answer.token_evals
        expanded += count
        queue.add(pool.expand(chosen[:count], answer))
        queue.refresh()
        if watch is not None:
            watch(pool.bounds(), spent)
    pool.sum_up()
    return Refined(pool.bounds(), spent, expanded, pool.open_count == 0)


class Rankings(NamedTuple):
    """In the order of WIDTH, TAIL, MASS: log gains by depth and edits left, and steps until they are had."""

    gains: list[NDArray[np.float64]]  # [T + 1, budget + 1] each
    steps: list[NDArray[np.float64]]  # [T + 1] each


def _rankings(pool: OpenMass, target_probs: Sequence[float] | None, *, room_in_tail: int) -> Rankings:
    length, budget = pool.ball.length, pool.ball.budget
    probabilities = np.full(length, 0.5) if target_probs is None else np.asarray(target_probs)
    tails = np.append(np.cumsum(np.log(np.clip(probabilities, HARD_PLACE, 1.0))[::-1])[::-1], 0.0)  # log Π_{s>t} q_s
    room = np.log(np.arange(1, budget + 2))[None]  # log (r + 1)
    gains = [
        2 * room - _heaviest(pool)[:, None],
        room_in_tail * room + tails[:, None],
        np.zeros((length + 1, 1)) - 2 * room,
    ]
    to_the_end = np.maximum(1.0, length - np.arange(length + 1))
    return Rankings(gains, [to_the_end, to_the_end, np.ones(length + 1)])


def _heaviest(pool: OpenMass) -> NDArray[np.float64]:
    """log mass of the heaviest open node of each depth; between its neighbours where a depth has none. [T + 1]"""
    heaviest = np.full(pool.ball.length + 1, -np.inf)
    nodes = pool.open_nodes()
    np.maximum.at(heaviest, pool.tree.depths[nodes], pool.tree.log_p[nodes])
    (depths,) = np.nonzero(heaviest > -np.inf)
    if len(depths) == 0:
        return np.zeros_like(heaviest)
    filled: NDArray[np.float64] = np.interp(np.arange(len(heaviest)), depths, heaviest[depths])
    return filled


def _is_done(lower: float, upper: float, options: RefineOptions) -> bool:
    if options.gap is not None and upper - lower <= options.gap:
        return True
    return options.threshold is not None and (lower >= options.threshold or upper < options.threshold)
