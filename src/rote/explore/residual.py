"""The mass the search left open, estimated: sample open nodes, continue under the policy, count what ends in the ball.

    p = accepted + Σ_i m_i h_i         m_i: mass of open node i (known);  h_i: its chance to end in the ball (sampled)

N tickets are drawn with probabilities q_i ∝ m_i g_i; a ticket on node i weighs m_i / (N q_i), so the estimate

    accepted + Σ_i m_i / (N q_i) · hits_i

is unbiased for any g > 0. With g_i = √h_i the variance is least for a given number of tickets (Neyman's allocation);
h_i is guessed from the teacher-forced pass (`search.promise`) and kept away from 0, so that a wrong guess costs at most
1/GUARD in variance. Tickets are allotted systematically, to nodes and to children alike. How many tickets the budget
buys is learned from a pilot whose hits are thrown away: a sample size that depended on the hits it counts would bias
them.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.errors import ConfigError
from rote.explore.intervals import LEVEL, rare_interval, student_quantile
from rote.explore.open_mass import OpenMass
from rote.explore.sampling import Rolled, Starts, divide_systematically, roll
from rote.explore.trie import Answer, Exploration, Request
from rote.types import Estimate, Interval

GUARD = 0.1
"""No node is given less than this share of the tickets its mass alone would get, before normalising."""
REPLICATES = 16
"""Independent groups of tickets; their spread is the standard error."""
PILOT_SHARE = 0.1
"""Share of the budget the pilot is meant to use."""
GUESSED_EVALS_PER_TICKET = 10
ENOUGH_HITS = 30.0
"""Effective hits from which the spread of the replicates is trusted; below, the interval of rare hits is used."""
MOST_TICKETS = 1_000_000


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
    """Open nodes with their ticket shares, ordered so that systematic allotment stratifies by chance and mass."""

    nodes: NDArray[np.int64]
    mass: NDArray[np.float64]
    shares: NDArray[np.float64]


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
        return Estimate(pool.lower, 0.0, Interval(pool.lower, upper, LEVEL), 0, 0)
    pilot_tickets = max(2 * REPLICATES, round(PILOT_SHARE * options.token_evals / GUESSED_EVALS_PER_TICKET))
    pilot = yield from _draw(pool, plan, generator, tickets=pilot_tickets)
    tickets = _affordable(pool, plan, pilot, pilot_tickets, options)
    main = yield from _draw(pool, plan, generator, tickets=tickets)
    value, error = _summary(plan, main, tickets)
    weights = plan.mass / (tickets * plan.shares)
    interval = _interval(plan, main, weights, value, error)
    low, high = pool.lower + interval.low, pool.lower + interval.high + pool.unlisted
    clipped = Interval(min(max(low, pool.lower), upper), min(high, upper), LEVEL)
    # Without a hit the spread is 0 and says nothing: the error is undefined, the interval tells what is known.
    known_error = error if value > 0 else math.nan
    return Estimate(pool.lower + value, known_error, clipped, tickets, pilot.token_evals + main.token_evals)


def _plan(pool: OpenMass, chances: NDArray[np.float64] | None) -> _Plan:
    nodes = pool.open_nodes()
    mass = pool.mass[nodes]
    gain = np.ones(len(nodes))
    if chances is not None:
        gain = np.exp(0.5 * chances[pool.depths[nodes], pool.ball.budget - pool.least[nodes]])
    gain = np.maximum(gain, GUARD)
    order = np.lexsort((-mass, -gain))
    shares = (mass * gain)[order]
    total = shares.sum()
    return _Plan(nodes[order], mass[order], shares / total) if total > 0 else _Plan(nodes[:0], mass[:0], shares[:0])


def _draw(
    pool: OpenMass, plan: _Plan, generator: np.random.Generator, *, tickets: int
) -> Generator[Request, Answer, Rolled]:
    """Tickets of all replicates, allotted systematically and followed to their ends. Hits are in the plan's order."""
    groups = np.full((1, REPLICATES), tickets // REPLICATES, dtype=np.int64)
    allotted = divide_systematically(groups, plan.shares[None], generator)[0].T  # [nodes, replicates]
    (used,) = np.nonzero(allotted.any(1))
    nodes = plan.nodes[used]
    starts = Starts([pool.path(int(node)) for node in nodes], pool.states[nodes], allotted[used])
    rolled = yield from roll(pool.ball, starts, generator, is_systematic=True, ends_exactly=True)
    hits = np.zeros((len(plan.nodes), REPLICATES))
    hits[used] = rolled.hits
    return Rolled(hits, rolled.token_evals)


def _summary(plan: _Plan, rolled: Rolled, tickets: int) -> tuple[float, float]:
    """The open mass in the ball, and its standard error from the spread of the replicates."""
    per_group = tickets // REPLICATES
    weights = plan.mass / (per_group * plan.shares)
    estimates = weights @ rolled.hits  # [replicates]
    return float(estimates.mean()), float(estimates.std(ddof=1) / math.sqrt(REPLICATES))


def _affordable(pool: OpenMass, plan: _Plan, pilot: Rolled, tickets: int, options: ResidualOptions) -> int:
    """Tickets that the rest of the budget buys at the pilot's price, or fewer if the wanted error needs fewer."""
    rest = options.token_evals - pilot.token_evals
    count = tickets * rest / max(1, pilot.token_evals)
    if options.relative_error is not None:
        value, error = _summary(plan, pilot, tickets)
        goal = options.relative_error * (pool.lower + value)
        if error > 0 and goal > 0:
            count = min(count, tickets * (error / goal) ** 2)
    per_group = max(2, math.floor(min(count, MOST_TICKETS) / REPLICATES))
    return per_group * REPLICATES


def _interval(plan: _Plan, rolled: Rolled, weights: NDArray[np.float64], value: float, error: float) -> Interval:
    """The open mass in the ball at 95 %: replicates when there are enough hits, else the interval of rare hits."""
    hits = rolled.hits.sum(1)
    squares = float((weights * weights) @ hits)
    effective = value * value / squares if squares > 0 else 0.0
    if effective >= ENOUGH_HITS:
        half = student_quantile(LEVEL, REPLICATES - 1) * error
        return Interval(value - half, value + half, LEVEL)
    return rare_interval(value, squares, heaviest=float(weights.max()), level=LEVEL)
