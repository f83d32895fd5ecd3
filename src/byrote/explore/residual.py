"""The mass the search left open, estimated: sample open nodes, continue under the policy, count what ends in the ball.

    p = accepted + Σ_i m_i h_i         m_i: mass of open node i (known);  h_i: its chance to end in the ball (sampled)

N tickets start at open nodes in proportion to their mass. A ticket ends in the ball with chance (p − accepted) / O, O
being the whole open mass, so O times the share of hits is unbiased for what is missing, and the number of hits has
exact limits: nothing is assumed about spread, and they hold without any hit and when all tickets agree. Tickets are
stratified and independent (`explore.sampling`). How many the budget buys is learned from a pilot whose hits are thrown
away: a sample size that depended on the hits it counts would bias them.

The standard error comes from the interval, not from the spread of the tickets: a few strata can hold all of the
variance and agree by chance, and then the spread seen is practically zero. It is the distance from the value to the
farther end of the 95 % interval, divided by 1.96, so value ± 1.96 standard errors holds whenever the interval does.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.errors import ConfigError
from byrote.explore.base import Exploration
from byrote.explore.open_mass import OpenMass
from byrote.explore.sampling import LEVEL, Tickets, Walks, lower_limit, upper_limit
from byrote.types import Estimate, Interval

PILOT_TICKETS = 16
"""Tickets of a pilot, and of the draw after it, at the very least."""
PILOT_SHARE = 0.1
"""Share of the budget the pilot is meant to use, if that is more than its least number of tickets."""
GUESSED_EVALS_PER_TICKET = 10
MOST_TICKETS = 50_000
TICKET_STEP = 1.25
"""Ratio of the sample sizes that are tried for a wanted error."""
QUANTILE = NormalDist().inv_cdf((1 + LEVEL) / 2)
NEGLIGIBLE_BIAS = 0.01
"""Unlisted mass below this share of the interval's width does not count as a bias of the estimate."""
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualOptions:
    """How much to spend on a window: a number of evaluations, or of tickets."""

    token_evals: int | None
    """A pilot says how many tickets these buy, so what is spent is close to it."""
    relative_error: float | None
    """Draw no more than it takes to bring the relative standard error down to this, as far as the pilot can tell."""
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

    Unlisted mass cannot be sampled: the interval and the limit count all of it, and where it is more than a small part
    of the interval, value and standard error are NaN, because any value would be biased.
    """
    plan = _plan(pool, ratings)
    base, upper = _certain(pool, p_verbatim)
    if len(plan.nodes) == 0:
        limits = Interval(base, upper, LEVEL)
        value, error = _value_and_error(base, limits, pool.unlisted)
        return Estimate(value, error, limits, upper, 0, 0, hits=0, sampled_mass=0.0, base_mass=base + pool.unlisted)
    walks = Walks(pool.tree, counts_target=p_verbatim is None)
    tickets, spent = options.tickets, 0
    if tickets is None:
        tickets, spent = yield from _affordable(base, plan, walks, generator, options)
    main = yield from walks.roll(Tickets.stratified(tickets, *plan, generator), generator)
    hits, mass, tail = int(main.hits.sum()), float(plan.mass.sum()), (1 - LEVEL) / 2

    def certified(limit: float) -> float:
        return min(max(limit, base), upper)

    low = certified(base + mass * lower_limit(hits, tickets, alpha=tail))
    high = certified(base + mass * upper_limit(hits, tickets, alpha=tail) + pool.unlisted)
    limit = certified(base + mass * upper_limit(hits, tickets, alpha=1 - LEVEL) + pool.unlisted)
    interval = Interval(low, high, LEVEL)
    value, error = _value_and_error(certified(base + mass * float(main.shares.mean())), interval, pool.unlisted)
    return Estimate(
        value,
        error,
        interval,
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


def _value_and_error(value: float, interval: Interval, unlisted: float) -> tuple[float, float]:
    """The value and its standard error; both NaN where what was not listed would bias them."""
    if unlisted > max(ROUNDING, NEGLIGIBLE_BIAS * (interval.high - interval.low)):
        return math.nan, math.nan
    return value, max(interval.high - value, value - interval.low) / QUANTILE


class _Affordable(NamedTuple):
    tickets: int
    token_evals: int
    """What the pilot took."""


def _affordable(
    base: float, plan: _Plan, walks: Walks, generator: np.random.Generator, options: ResidualOptions
) -> Exploration[_Affordable]:
    """Tickets that the rest of the budget buys at a pilot's price, or fewer if the wanted error needs fewer."""
    assert options.token_evals is not None
    tickets = max(PILOT_TICKETS, round(PILOT_SHARE * options.token_evals / GUESSED_EVALS_PER_TICKET))
    pilot = yield from walks.roll(Tickets.stratified(tickets, *plan, generator), generator)
    bought = tickets * (options.token_evals - pilot.token_evals) / max(1, pilot.token_evals)
    count = max(PILOT_TICKETS, math.floor(min(bought, MOST_TICKETS)))
    if options.relative_error is not None:
        hits, mass = int(pilot.hits.sum()), float(plan.mass.sum())
        count = _enough(base / mass, hits, tickets, goal=options.relative_error, most=count)
    return _Affordable(count, pilot.token_evals)


def _enough(base: float, hits: int, tickets: int, *, goal: float, most: int) -> int:
    """Tickets that bring the relative standard error down to `goal`, or `most` where that is not enough, at the worst
    chance to hit that the pilot's interval leaves possible. `base` is in units of the open mass."""
    tail = (1 - LEVEL) / 2
    low, high = lower_limit(hits, tickets, alpha=tail), upper_limit(hits, tickets, alpha=tail)
    # √(h (1 − h)) / (base + h), the relative error of one ticket, is largest at base / (1 + 2 base).
    worst = min(max(base / (1 + 2 * base), low), high)
    count = PILOT_TICKETS
    while count < most:
        expected = round(worst * count)
        ends = (limit(expected, count, alpha=tail) for limit in (lower_limit, upper_limit))
        error = max(abs(end - expected / count) for end in ends) / QUANTILE
        if error <= goal * (base + worst):
            return count
        count = math.ceil(TICKET_STEP * count)
    return most
