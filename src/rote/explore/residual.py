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
from rote.explore.intervals import LEVEL, lower_limit, upper_limit
from rote.explore.open_mass import OpenMass
from rote.explore.sampling import Rolled, Tickets, Walks
from rote.types import Estimate, Interval

PILOT_TICKETS = 16
"""Tickets of a pilot, and of the draw after it, at the very least."""
PILOT_SHARE = 0.1
"""Share of the budget the pilot is meant to use, if that is more than its least number of tickets."""
GUESSED_EVALS_PER_TICKET = 10
MOST_TICKETS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualOptions:
    """How much to spend on a window. The actual number of evaluations follows the pilot's prediction."""

    token_evals: int
    relative_error: float | None
    """Draw no more than it takes to bring the relative standard error down to this."""

    def __post_init__(self) -> None:
        if self.token_evals < 1:
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
    chances: NDArray[np.float64] | None,
) -> Exploration[Estimate]:
    """The mass within the budget. `chances` [T + 1, budget + 1] are log chances to finish (`completion_table`)."""
    plan = _plan(pool, chances)
    upper = pool.bounds().upper[-1]
    if len(plan.nodes) == 0:
        return Estimate(pool.lower, 0.0, Interval(pool.lower, upper, LEVEL), upper, 0, 0)
    pilot_tickets = max(PILOT_TICKETS, round(PILOT_SHARE * options.token_evals / GUESSED_EVALS_PER_TICKET))
    walks = Walks(pool.tree)
    pilot = yield from walks.roll(Tickets.stratified(pilot_tickets, *plan, generator), generator)
    tickets = _affordable(pool, plan, pilot, options)
    main = yield from walks.roll(Tickets.stratified(tickets, *plan, generator), generator)
    hits, mass, tail = int(main.hits.sum()), float(plan.mass.sum()), (1 - LEVEL) / 2
    value, error = _summary(mass * main.shares)

    def certified(limit: float) -> float:
        return min(max(limit, pool.lower), upper)

    low = certified(pool.lower + mass * lower_limit(hits, tickets, alpha=tail))
    high = certified(pool.lower + mass * upper_limit(hits, tickets, alpha=tail) + pool.unlisted)
    limit = certified(pool.lower + mass * upper_limit(hits, tickets, alpha=1 - LEVEL) + pool.unlisted)
    return Estimate(
        pool.lower + value,
        error,
        Interval(low, high, LEVEL),
        limit,
        tickets,
        pilot.token_evals + main.token_evals,
    )


def _plan(pool: OpenMass, chances: NDArray[np.float64] | None) -> _Plan:
    nodes = pool.open_nodes()
    mass = np.exp(pool.tree.log_p[nodes])
    promise = np.zeros(len(nodes))
    if chances is not None:
        promise = chances[pool.tree.depths[nodes], pool.ball.budget - pool.tree.least[nodes]]
    order = np.lexsort((-mass, -promise))
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


def _affordable(pool: OpenMass, plan: _Plan, pilot: Rolled, options: ResidualOptions) -> int:
    """Tickets that the rest of the budget buys at the pilot's price, or fewer if the wanted error needs fewer."""
    tickets = len(pilot.hits)
    count = tickets * (options.token_evals - pilot.token_evals) / max(1, pilot.token_evals)
    if options.relative_error is not None:
        value, error = _summary(plan.mass.sum() * pilot.shares)
        goal = options.relative_error * (pool.lower + value)
        if error > 0 and goal > 0:
            count = min(count, tickets * (error / goal) ** 2)
    return max(PILOT_TICKETS, math.floor(min(count, MOST_TICKETS)))
