"""The mass the search left open, estimated: sample open nodes, continue under the policy, count what ends in the ball.

    p = accepted + Σ_i m_i h_i         m_i: mass of open node i (known);  h_i: its chance to end in the ball (sampled)

N tickets start at open nodes in proportion to their mass. A ticket ends in the ball with chance (p − accepted) / O, O
being the whole open mass, so O times the share of hits is unbiased for what is missing, and the number of hits has
exact limits: nothing is assumed about spread, and they hold without any hit and when all tickets agree. Tickets are
stratified and independent (`explore.sampling`). How many the budget buys is learned from a pilot whose hits are thrown
away: a sample size that depended on the hits it counts would bias them.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.errors import ConfigError
from rote.explore.base import Exploration
from rote.explore.open_mass import OpenMass
from rote.explore.sampling import Tickets, Walks
from rote.explore.ticket_limits import LEVEL, lower_limit, upper_limit
from rote.types import Estimate, Interval

PILOT_TICKETS = 16
"""Tickets of a pilot, and of the draw after it, at the very least."""
PILOT_SHARE = 0.1
"""Share of the budget the pilot is meant to use, if that is more than its least number of tickets."""
GUESSED_EVALS_PER_TICKET = 10
MOST_TICKETS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualOptions:
    """How much to spend on a window: a number of evaluations, or of tickets."""

    token_evals: int | None
    """A pilot says how many tickets these buy, so what is spent is close to it."""
    relative_error: float | None
    """Draw no more than it takes to bring the relative standard error down to this."""
    tickets: int | None = None
    """Exactly as many, without a pilot; the evaluations are what they are."""

    def __post_init__(self) -> None:
        if (self.token_evals is None) == (self.tickets is None):
            raise ConfigError("an estimate needs either token evaluations or tickets.")
        if self.token_evals is not None and self.token_evals < 1:
            raise ConfigError(f"residual is {self.token_evals}; it must be at least 1 token evaluation.")
        if self.relative_error is not None and self.relative_error <= 0:
            raise ConfigError(f"residual-error is {self.relative_error}; it must be above 0.")


class _Plan(NamedTuple):
    """Open nodes, ordered so that neighbours on the line of masses are alike: stratifying then pays."""

    nodes: NDArray[np.int64]
    mass: NDArray[np.float64]


def estimate_open(
    pool: OpenMass,
    generator: np.random.Generator,
    options: ResidualOptions,
    *,
    ratings: NDArray[np.float64] | None,
    p_verbatim: float | None = None,
) -> Exploration[Estimate]:
    """The mass within the budget. `ratings` [T + 1, budget + 1] are the log ratings of nodes (`rating_table`).

    Where the target's own probability is known, it is taken as known: tickets that end at the target count for nothing,
    and neither value nor limits are below what is certified, whether the search came upon the target or lost it.
    """
    plan = _plan(pool, ratings)
    base, upper = _certain(pool, p_verbatim)
    if len(plan.nodes) == 0:
        limits = Interval(base, upper, LEVEL)
        return Estimate(base, 0.0, limits, upper, 0, 0, hits=0, sampled_mass=0.0, base_mass=base + pool.unlisted)
    walks = Walks(pool.tree, counts_target=p_verbatim is None)
    tickets, spent = options.tickets, 0
    if tickets is None:
        tickets, spent = yield from _affordable(pool, plan, walks, generator, options)
    main = yield from walks.roll(Tickets.stratified(tickets, *plan, generator), generator)
    hits, mass, tail = int(main.hits.sum()), float(plan.mass.sum()), (1 - LEVEL) / 2
    value, error = _summary(mass * main.shares)

    def certified(limit: float) -> float:
        return min(max(limit, base), upper)

    low = certified(base + mass * lower_limit(hits, tickets, alpha=tail))
    high = certified(base + mass * upper_limit(hits, tickets, alpha=tail) + pool.unlisted)
    limit = certified(base + mass * upper_limit(hits, tickets, alpha=1 - LEVEL) + pool.unlisted)
    return Estimate(
        min(base + value, upper),
        error,
        Interval(low, high, LEVEL),
        limit,
        tickets,
        spent + main.token_evals,
        hits=hits,
        sampled_mass=mass,
        base_mass=base + pool.unlisted,
    )


def _certain(pool: OpenMass, p_verbatim: float | None) -> tuple[float, float]:
    """What no sample can lower or raise: the certified bounds, the target's probability taken in where it is known."""
    known = 0.0 if p_verbatim is None else p_verbatim - float(pool.accepted[0])
    base = min(pool.lower + known, 1.0)
    # Within 0 edits there is the target alone.
    is_known = p_verbatim is not None and pool.ball.budget == 0
    return base, base if is_known else max(pool.bounds().upper[-1], base)


def _plan(pool: OpenMass, ratings: NDArray[np.float64] | None) -> _Plan:
    nodes = pool.open_nodes()
    mass = np.exp(pool.tree.log_p[nodes])
    rating = np.zeros(len(nodes))
    if ratings is not None:
        rating = ratings[pool.tree.depths[nodes], pool.ball.budget - pool.tree.least[nodes]]
    order = np.lexsort((-mass, -rating))
    return _Plan(nodes[order], mass[order]) if mass.sum() > 0 else _Plan(nodes[:0], mass[:0])


def _summary(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard error of stratified tickets, from the differences of neighbours.

    Σ over pairs of (a − b)² is on average at least the sum of the tickets' variances. Without any difference nothing is
    known about them, and the error is NaN.
    """
    count = len(values)
    pairs = values[: count // 2 * 2].reshape(-1, 2)
    spread = float(((pairs[:, 0] - pairs[:, 1]) ** 2).sum()) / (len(pairs) * 2 * count)
    return float(values.mean()), math.sqrt(spread) if spread > 0 else math.nan


class _Affordable(NamedTuple):
    tickets: int
    token_evals: int
    """What the pilot took."""


def _affordable(
    pool: OpenMass, plan: _Plan, walks: Walks, generator: np.random.Generator, options: ResidualOptions
) -> Exploration[_Affordable]:
    """Tickets that the rest of the budget buys at a pilot's price, or fewer if the wanted error needs fewer."""
    assert options.token_evals is not None
    tickets = max(PILOT_TICKETS, round(PILOT_SHARE * options.token_evals / GUESSED_EVALS_PER_TICKET))
    pilot = yield from walks.roll(Tickets.stratified(tickets, *plan, generator), generator)
    count = tickets * (options.token_evals - pilot.token_evals) / max(1, pilot.token_evals)
    if options.relative_error is not None:
        value, error = _summary(plan.mass.sum() * pilot.shares)
        goal = options.relative_error * (pool.lower + value)
        if error > 0 and goal > 0:
            count = min(count, tickets * (error / goal) ** 2)
    return _Affordable(max(PILOT_TICKETS, math.floor(min(count, MOST_TICKETS))), pilot.token_evals)
