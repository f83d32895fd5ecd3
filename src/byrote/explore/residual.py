"""The mass the search left open, estimated: sample open nodes, continue under the policy, count what ends in the ball.

    p = accepted + Σ_i m_i h_i         m_i: mass of open node i (known);  h_i: its chance to end in the ball (sampled)

N samples start at open nodes in proportion to their mass. A sample ends in the ball with chance (p − accepted) / O, O
being the whole open mass, so O times the share of hits is unbiased for what is missing, and the number of hits has
exact limits: nothing is assumed about spread, and they hold without any hit and when all samples agree. Samples are
stratified and independent (`explore.sampling`). How many the budget buys is measured by a pilot whose hits are thrown
away: a sample size that depended on the hits it counts would bias them.

The standard error comes from the interval, not from the spread of the samples: a few strata can hold all of the
variance and agree by chance, and then the spread seen is practically zero. It is the distance from the value to the
farther end of the 95 % interval, divided by 1.96, so value ± 1.96 standard errors holds whenever the interval does.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from byrote.explore.base import Exploration
from byrote.explore.open_mass import OpenMass
from byrote.explore.sampling import Sampler, Samples
from byrote.types import Interval
from byrote.verdict import Estimate

LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
QUANTILE = NormalDist().inv_cdf((1 + LEVEL) / 2)
PILOT_SAMPLES = 16
"""Samples of a pilot, and of the draw after it, at the very least."""
PILOT_SHARE = 0.1
"""Share of the budget the pilot is meant to use, if that is more than its least number of samples."""
EXPECTED_EVALS_PER_SAMPLE = 10
MOST_SAMPLES = 50_000
SAMPLES_STEP = 1.25
"""Ratio of the sample sizes that are tried for a wanted error."""
NEGLIGIBLE_BIAS = 0.01
"""Unlisted mass below this share of the interval's width does not count as a bias of the estimate."""
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualOptions:
    """How much to spend on a window: a number of evaluations, or of samples."""

    token_evals: int | None
    """A pilot measures how many samples these buy, so what is spent is close to it."""
    relative_error: float | None
    """Draw no more than it takes to bring the relative standard error down to this, as far as the pilot shows."""
    samples: int | None = None
    """Exactly as many, without a pilot and at any number of evaluations."""


def estimate_open(
    pool: OpenMass,
    generator: np.random.Generator,
    options: ResidualOptions,
    *,
    log_scores: NDArray[np.float64] | None,
    p_verbatim: float | None = None,
) -> Exploration[Estimate]:
    """The mass within the budget. `log_scores` [T + 1, budget + 1] are those of `log_score_table`.

    Where the target's own probability is known, samples that end at the target count for nothing, and neither value nor
    limits are below what is certified, whether the search found the target or lost it.

    Unlisted mass cannot be sampled: the interval and the limit count all of it, and where it is more than a small part
    of the interval, value and standard error are NaN, because any value would be biased.
    """
    strata = _strata(pool, log_scores)
    base, upper = _certain(pool, p_verbatim)
    mass = float(strata[1].sum())
    if mass <= 0:
        limits = Interval(base, upper, LEVEL)
        value, error = _value_and_error(base, limits, pool.unlisted)
        return Estimate(value, error, limits, upper, 0, 0, hits=0, sampled_mass=0.0, base_mass=base + pool.unlisted)
    sampler = Sampler(pool.tree, counts_target=p_verbatim is None)
    samples, spent = options.samples, 0
    if samples is None:
        samples, spent = yield from _affordable(base, strata, sampler, generator, options)
    main = yield from sampler.follow(Samples.stratified(samples, *strata, generator), generator)
    hits = int(main.hits.sum())

    def certified(limit: float) -> float:
        return min(max(limit, base), upper)

    low = certified(base + mass * lower_limit(hits, samples, alpha=TAIL))
    high = certified(base + mass * upper_limit(hits, samples, alpha=TAIL) + pool.unlisted)
    limit = certified(base + mass * upper_limit(hits, samples, alpha=1 - LEVEL) + pool.unlisted)
    interval = Interval(low, high, LEVEL)
    value, error = _value_and_error(certified(base + mass * float(main.shares.mean())), interval, pool.unlisted)
    return Estimate(
        value,
        error,
        interval,
        limit,
        samples,
        spent + main.token_evals,
        hits=hits,
        sampled_mass=mass,
        base_mass=base + pool.unlisted,
    )


def _certain(pool: OpenMass, p_verbatim: float | None) -> tuple[float, float]:
    """What no sample can lower or raise: the certified bounds, with the target's probability where it is known."""
    known = 0.0 if p_verbatim is None else p_verbatim - float(pool.accepted[0])
    base = min(pool.lower + known, 1.0)
    # Within 0 edits there is the target alone.
    is_known = p_verbatim is not None and pool.ball.budget == 0
    return base, base if is_known else max(pool.bounds().upper[-1], base)


_Strata = tuple[NDArray[np.int64], NDArray[np.float64]]


def _strata(pool: OpenMass, log_scores: NDArray[np.float64] | None) -> _Strata:
    """Open nodes and their masses, ordered so that neighbours are alike: stratifying then pays."""
    nodes = pool.open_nodes()
    mass = np.exp(pool.tree.log_p[nodes])
    score = np.zeros(len(nodes))
    if log_scores is not None:
        score = log_scores[pool.tree.depths[nodes], pool.ball.budget - pool.tree.least[nodes]]
    order = np.lexsort((-mass, -score))
    return nodes[order], mass[order]


def _value_and_error(value: float, interval: Interval, unlisted: float) -> tuple[float, float]:
    """The value and its standard error; both NaN where what was not listed would bias them."""
    if unlisted > max(ROUNDING, NEGLIGIBLE_BIAS * (interval.high - interval.low)):
        return math.nan, math.nan
    return value, max(interval.high - value, value - interval.low) / QUANTILE


def _affordable(
    base: float, strata: _Strata, sampler: Sampler, generator: np.random.Generator, options: ResidualOptions
) -> Exploration[tuple[int, int]]:
    """Samples that the rest of the budget buys at a pilot's price, or fewer if the wanted error needs fewer; and the
    evaluations of the pilot."""
    assert options.token_evals is not None
    drawn = max(PILOT_SAMPLES, round(PILOT_SHARE * options.token_evals / EXPECTED_EVALS_PER_SAMPLE))
    pilot = yield from sampler.follow(Samples.stratified(drawn, *strata, generator), generator)
    bought = drawn * (options.token_evals - pilot.token_evals) / max(1, pilot.token_evals)
    count = max(PILOT_SAMPLES, math.floor(min(bought, MOST_SAMPLES)))
    if options.relative_error is not None:
        in_units = base / float(strata[1].sum())
        count = _enough(in_units, int(pilot.hits.sum()), drawn, goal=options.relative_error, most=count)
    return count, pilot.token_evals


def _enough(base: float, hits: int, samples: int, *, goal: float, most: int) -> int:
    """Samples that bring the relative standard error down to `goal`, or `most` where that is not enough, at the worst
    chance to hit that the pilot's interval leaves possible. `base` is in units of the open mass."""
    low, high = lower_limit(hits, samples, alpha=TAIL), upper_limit(hits, samples, alpha=TAIL)
    # √(h (1 − h)) / (base + h), the relative error of one sample, is largest at base / (1 + 2 base).
    worst = min(max(base / (1 + 2 * base), low), high)
    count = PILOT_SAMPLES
    while count < most:
        expected = round(worst * count)
        ends = (limit(expected, count, alpha=TAIL) for limit in (lower_limit, upper_limit))
        error = max(abs(end - expected / count) for end in ends) / QUANTILE
        if error <= goal * (base + worst):
            return count
        count = math.ceil(SAMPLES_STEP * count)
    return most


@lru_cache(maxsize=4096)
def upper_limit(hits: int, trials: int, *, alpha: float) -> float:
    """The mean chance of a trial is at most this, with confidence 1 − `alpha` (Clopper–Pearson); 1 if every trial hit.

    It holds for independent trials of unequal chances too: their count spreads less than a binomial (Hoeffding 1956).
    """
    if hits == trials:
        return 1.0
    # log P(S = s) at even odds, from s = hits downwards. Terms that no float could hold beside the first are left out.
    counts = np.arange(hits, max(-1, hits - 60 - 12 * math.isqrt(trials)), -1)
    log_terms = np.cumsum(np.log(counts[:-1] / (trials - counts[:-1] + 1)), dtype=np.float64)
    first = math.lgamma(trials + 1) - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
    steps = np.arange(1, len(counts))
    low, high = hits / trials, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        odds = math.log1p(-middle) - math.log(middle)
        tail = 1.0 + float(np.exp(log_terms + steps * odds).sum())
        log_chance = first + trials * math.log1p(-middle) - hits * odds + math.log(tail)
        low, high = (middle, high) if log_chance > math.log(alpha) else (low, middle)
    return high


def lower_limit(hits: int, trials: int, *, alpha: float) -> float:
    """The mean chance of a trial is at least this, with confidence 1 − `alpha`; 0 when none hit."""
    return 1.0 - upper_limit(trials - hits, trials, alpha=alpha)
