"""Confidence intervals for a share of independent windows: Wilson, and exact (Clopper–Pearson).

Windows that overlap or come from the same document are not independent; `byrote.stats.clusters` is for those.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from byrote.deferred import Deferred
from byrote.errors import ConfigError
from byrote.types import Interval, IntervalName

special = Deferred("scipy.special")

LEVEL = 0.95


class RateMethod(StrEnum):
    """How the interval of a rate was made; printed beside the number."""

    BY_DOCUMENT = "by_document"
    """Documents are the independent units: the interval is about other texts like these."""
    BY_BLOCK = "by_block"
    """Stretches of text are the independent units: the interval is about other passages of these texts."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of windows with its interval. NaN value and interval mean undefined; `interval.reason` says why."""

    value: float
    interval: Interval
    n: int
    """Windows counted, overlapping or not."""
    method: RateMethod
    units: int
    """Documents or blocks treated as independent."""
    design_effect: float
    """Variance relative to n independent windows; n / design_effect windows carry the same information."""


def undefined(reason: str, *, level: float = LEVEL) -> Interval:
    """An interval that cannot be given, with the reason."""
    return Interval(math.nan, math.nan, level, reason)


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ConfigError(f"Confidence level {level} is outside (0, 1); use for example 0.95.")


def normal_quantile(level: float) -> float:
    """The two-sided standard normal quantile: 1.96 at level 0.95."""
    return float(-special.ndtri((1.0 - level) / 2.0))


def student_quantile(level: float, degrees: float) -> float:
    """The two-sided Student quantile, which widens intervals whose variance rests on few units."""
    return float(-special.stdtrit(degrees, (1.0 - level) / 2.0))


def wilson_interval(successes: int, trials: int, *, level: float = LEVEL) -> Interval:
    """Wilson's score interval: all p with (share − p)² ≤ quantile²/trials · p(1 − p); NaN when there are no trials.

    It covers the level on average over p, and less for some p close to 0 or 1.
    """
    if trials == 0:
        return undefined("no windows, so no rate", level=level)
    share, spread = successes / trials, normal_quantile(level) ** 2 / trials
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = math.sqrt(spread * share * (1.0 - share) + spread * spread / 4.0) / (1.0 + spread)
    # At a share of 0 or 1 the end is exact in real arithmetic; rounding must not move it off the share.
    low = 0.0 if share == 0.0 else max(0.0, centre - half)
    high = 1.0 if share == 1.0 else min(1.0, centre + half)
    return Interval(low, high, level)


def exact_interval(successes: float, trials: float, *, level: float = LEVEL) -> Interval:
    """The Clopper–Pearson interval: each binomial tail at its ends is (1 − level)/2; NaN when there are no trials.

    Counts need not be whole: a share of windows that say as much as `trials` independent ones has an interval too.
    """
    check_level(level)
    if trials == 0:
        return undefined("no windows, so no rate", level=level)
    tail, misses = (1.0 - level) / 2.0, trials - successes
    low = 0.0 if successes <= 0 else float(special.betaincinv(successes, misses + 1.0, tail))
    high = 1.0 if misses <= 0 else float(special.betainccinv(successes + 1.0, misses, tail))
    return Interval(low, high, level)


INTERVALS: dict[IntervalName, Callable[[int, int], Interval]] = {"wilson": wilson_interval, "exact": exact_interval}
"""Intervals of a share by name, at the usual level."""
