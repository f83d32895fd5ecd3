"""Intervals for sampled probabilities, with numpy and torch alone: shares of samples and weighted sums of rare hits.

`rote.stats.intervals` has the same two for shares of windows, on scipy; these run where samples are drawn.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import torch

from rote.errors import ConfigError
from rote.types import Interval, IntervalName

LEVEL = 0.95


def normal_quantile(level: float) -> float:
    """Two-sided standard normal quantile: 1.96 at level 0.95."""
    if not 0.0 < level < 1.0:
        raise ConfigError(f"Confidence level {level} is outside (0, 1); use for example 0.95.")
    return math.sqrt(2.0) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))


@lru_cache(maxsize=256)
def student_quantile(level: float, degrees: int) -> float:
    """Two-sided Student quantile, from its exact distribution function at whole degrees of freedom."""
    return _bisect(lambda t: _student_two_sided(t, degrees), level, low=0.0, high=1e3)


def share_interval(hits: int, trials: int, *, level: float = LEVEL, method: IntervalName = "wilson") -> Interval:
    """The probability of a hit from independent trials; NaN with a reason without trials."""
    if not 0 <= hits <= trials:
        raise ConfigError(f"{hits} hits in {trials} trials is impossible; hits lie between 0 and trials.")
    if trials == 0:
        return Interval(math.nan, math.nan, level, "no samples, so no share")
    if method == "exact":
        return _clopper_pearson(hits, trials, level)
    share, spread = hits / trials, normal_quantile(level) ** 2 / trials
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * share * (1 - share) + spread * spread / 4) / (1 + spread)
    # At a share of 0 or 1 the end is exact in real arithmetic; rounding must not move it off the share.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == trials else min(1.0, centre + half)
    return Interval(low, high, level)


def rare_interval(total: float, squares: float, *, heaviest: float, level: float = LEVEL) -> Interval:
    """A sum of weighted rare hits: `total` = Σ weights of the hits, `squares` = Σ of their squares.

    The gamma interval of Fay and Feuer (1997) for weighted Poisson counts; `heaviest` is the largest weight a hit could
    have had. With equal weights it is Garwood's exact Poisson interval; without a hit it ends at 3.69 · heaviest.
    """
    tail = (1 - level) / 2
    low = 0.0 if total <= 0 else squares / total * gamma_quantile(tail, total * total / squares)
    spread, centre = squares + heaviest * heaviest, total + heaviest
    high = spread / centre * gamma_quantile(1 - tail, centre * centre / spread) if centre > 0 else 0.0
    return Interval(low, high, level)


def gamma_quantile(probability: float, shape: float) -> float:
    """The value below which a gamma variable of this shape and scale 1 stays with this probability."""
    if shape > 1e7:  # the normal limit; the incomplete gamma function loses its digits here
        deviate = float(torch.special.ndtri(torch.tensor(probability, dtype=torch.float64)))
        return shape + deviate * math.sqrt(shape)
    shape_tensor = torch.tensor(shape, dtype=torch.float64)
    high = shape + 40.0 * math.sqrt(shape) + 100.0
    return _bisect(
        lambda x: float(torch.special.gammainc(shape_tensor, torch.tensor(x, dtype=torch.float64))),
        probability,
        low=0.0,
        high=high,
    )


@lru_cache(maxsize=4096)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """The value below which a Beta(a, b) variable stays with this probability."""
    return _bisect(lambda x: incomplete_beta(x, a, b), probability, low=0.0, high=1.0)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (modified Lentz)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(10_000):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        denominator = 1.0 / _away_from_zero(1.0 + term * denominator)
        numerator = _away_from_zero(1.0 + term / numerator)
        fraction *= numerator * denominator
        if abs(numerator * denominator - 1.0) < 1e-14:
            break
    return math.exp(log_front) * (fraction - 1.0) / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _clopper_pearson(hits: int, trials: int, level: float) -> Interval:
    tail, misses = (1 - level) / 2, trials - hits
    low = 0.0 if hits == 0 else beta_quantile(tail, hits, misses + 1)
    high = 1.0 if misses == 0 else beta_quantile(1 - tail, hits + 1, misses)
    return Interval(low, high, level)


def _student_two_sided(t: float, degrees: int) -> float:
    """P(|T| ≤ t) with T of Student's distribution."""
    return 1.0 - incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def _bisect(rising: Callable[[float], float], goal: float, *, low: float, high: float) -> float:
    """Where a rising function reaches `goal`, to the last bit or nearly so."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if rising(middle) < goal else (low, middle)
    return (low + high) / 2
