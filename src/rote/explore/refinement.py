"""Anytime refinement: expand the frontier's best nodes first; lower bounds only rise, upper bounds only fall.

Expanding a node costs one evaluation (and those of ancestors that are not in memory) and moves its mass: to what is
accepted, out of the upper bound, or to its viable children. The bounds are sound after every step, so refinement may
stop anywhere: at a budget, at a gap, or as soon as the verdict at τ is decided.

Which node is best depends on the bound. With m the node's mass, t its depth, r the edits it has left, a the number of
its ancestors that are missing, q_s the teacher-forced probability of target token s (a hard place counts as 0.2: an
edit can pass it) and h_t the heaviest node that the search left open at depth t:

    mass     m / ((r + 1)² (1 + a))                 takes most from the upper bound: only refuted mass leaves it, and a
                                                    node with r edits left is r + 1 edits away from being refuted
    tail     m (r + 1) · Π_{s>t} q_s / (T − t + a)  adds most to the lower bound if the model follows the target; more
                                                    edits left are more ways to get there
    width    m (r + 1)² / h_t / (T − t + a)         goes on where a wider beam would have gone, at all depths alike
    both     width, tail and mass in turn

Where the lower bound is below 0.3 of the upper, the upper one falls by itself and the lower one is harder to raise:
there `both` is three by width, two by tail and two by mass. Below 0.001 the model hardly follows the target, and `tail`
counts (r + 1)².
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.errors import ConfigError
from rote.explore.base import Exploration, Request
from rote.explore.open_mass import OpenMass
from rote.explore.refinement_queue import RefineQueue
from rote.types import Bounds

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
