"""Confidence intervals for a share of independent windows: Wilson, and exact (Clopper–Pearson).

Windows that overlap or come from the same document are not independent; `byrote.stats.clusters` is for those.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy import special

from byrote.errors import ConfigError
from byrote.types import Interval


class RateMethod(StrEnum):
    """How the interval of a rate was made; printed beside the number."""

    WILSON = "wilson"
    """Score interval, windows independent."""
    EXACT = "exact"
    """Clopper–Pearson, windows independent: covers at least the level, whatever the rate."""
    BY_WINDOW = "by_window"
    """Windows are taken as independent, because their places were not given."""
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
    units: int | None = None
    """Documents or blocks treated as independent; None when every window is."""
    design_effect: float = 1.0
    """Variance relative to n independent windows; n / design_effect windows carry the same information."""


def undefined(reason: str, *, level: float = 0.95) -> Interval:
    """An interval that cannot be given, with the reason."""
    return Interval(math.nan, math.nan, level, reason)


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ConfigError(f"Confidence level {level} is outside (0, 1); use for example 0.95.")


def normal_quantile(level: float) -> float:
    """The two-sided standard normal quantile: 1.96 at level 0.95."""
    check_level(level)
    return float(-special.ndtri((1.0 - level) / 2.0))


def student_quantile(level: float, degrees: float) -> float:
    """The two-sided Student quantile, which widens intervals whose variance rests on few units."""
    check_level(level)
    return float(-special.stdtrit(degrees, (1.0 - level) / 2.0))


def wilson_interval(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Wilson's score interval: all p with (share − p)² ≤ quantile²/trials · p(1 − p); NaN when there are no trials.

    It covers the level on average over p, and less for some p close to 0 or 1.
    """
    check_level(level)
    _check_counts(successes, trials)
    if trials == 0:
        return undefined("no windows, so no rate", level=level)
    share, spread = successes / trials, normal_quantile(level) ** 2 / trials
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = math.sqrt(spread * share * (1.0 - share) + spread * spread / 4.0) / (1.0 + spread)
    # At a share of 0 or 1 the end is exact in real arithmetic; rounding must not move it off the share.
    low = 0.0 if share == 0.0 else max(0.0, centre - half)
    high = 1.0 if share == 1.0 else min(1.0, centre + half)
    return Interval(low, high, level)


def exact_interval(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """The Clopper–Pearson interval: each binomial tail at its ends is (1 − level)/2; NaN when there are no trials."""
    check_level(level)
    _check_counts(successes, trials)
    if trials == 0:
        return undefined("no windows, so no rate", level=level)
    return _clopper_pearson(successes, trials, level=level)


def exact_share_interval(share: float, effective: float, *, level: float) -> Interval:
    """Clopper and Pearson's interval of a share that says as much as `effective` trials, a whole number or not."""
    return _clopper_pearson(effective if share == 1.0 else share * effective, effective, level=level)


def _clopper_pearson(successes: float, trials: float, *, level: float) -> Interval:
    tail, misses = (1.0 - level) / 2.0, trials - successes
    low = 0.0 if successes <= 0 else float(special.betaincinv(successes, misses + 1.0, tail))
    high = 1.0 if misses <= 0 else float(special.betainccinv(successes + 1.0, misses, tail))
    return Interval(low, high, level)


def rate(successes: int, trials: int, *, level: float = 0.95, method: RateMethod = RateMethod.EXACT) -> Rate:
    """The share of independent windows that succeed, with its interval."""
    if method not in (RateMethod.WILSON, RateMethod.EXACT):
        raise ConfigError(f"Method {method} needs documents and positions; call rate_with_clusters.")
    make = wilson_interval if method is RateMethod.WILSON else exact_interval
    interval = make(successes, trials, level=level)
    return Rate(successes / trials if trials else math.nan, interval, trials, method)


def _check_counts(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise ConfigError(
            f"{successes} successes in {trials} trials is impossible; successes lie between 0 and trials."
        )
