"""Two runs or models on the same windows (paired), and two sets of windows (target against control).

McNemar's tests take windows as independent and answer "is there any difference"; with overlapping windows read the
clustered p-value and interval instead, which resample documents or blocks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from rote.errors import ConfigError, RunError
from rote.stats.clustered import METHOD_OF_KIND
from rote.stats.intervals import Rate, RateMethod, check_level, student_quantile, undefined
from rote.stats.units import FloatArray, IntArray, Places, Units, choose_units, document_units
from rote.types import Interval

RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One number per window of one run: hits as 0 and 1, or any measured quantity."""

    window_ids: tuple[str, ...]
    values: FloatArray

    @classmethod
    def of(cls, window_ids: Sequence[str], values: ArrayLike) -> "Outcomes":
        """Checked outcomes: one number per window, no window twice, none missing."""
        ids, numbers = tuple(window_ids), np.asarray(values, dtype=np.float64)
        if numbers.shape != (len(ids),):
            raise RunError(f"{len(ids)} windows but {numbers.size} values; the run's columns do not belong together.")
        if len(set(ids)) != len(ids):
            raise RunError(f"{len(ids) - len(set(ids))} windows occur more than once; a run holds each window once.")
        if np.isnan(numbers).any():
            raise RunError(
                f"{int(np.isnan(numbers).sum())} windows have no value (NaN); compare measured windows only."
            )
        return cls(ids, numbers)


class McNemar(NamedTuple):
    """Windows by outcome in both runs, and the chance of a split at least this uneven if the runs were equal."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_exact: float
    """Two-sided exact binomial test on the windows that differ: never rejects too often."""
    p_mid: float
    """The mid-p version: closer to its nominal level, and still almost never above it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Second minus first, over the same windows."""

    first: float
    second: float
    difference: float
    interval: Interval
    """Bootstrap of the difference over documents or blocks; NaN with a reason when no window differs."""
    p_value: float
    """Student test of no difference with the clustered standard error; NaN where the interval is."""
    n: int
    method: RateMethod
    units: int
    mcnemar: McNemar | None = None
    """Present for rates."""


def align(first_ids: Sequence[str], second_ids: Sequence[str]) -> IntArray:
    """Positions in the second run of the first run's windows; RunError unless both hold exactly the same windows."""
    where = {window_id: position for position, window_id in enumerate(second_ids)}
    missing = [window_id for window_id in first_ids if window_id not in where]
    extra = len(set(second_ids) - set(first_ids))
    if missing or extra:
        example = f" (for example {missing[0]})" if missing else ""
        raise RunError(
            f"The runs hold different windows: {len(missing)} only in the first{example}, {extra} only in the second. "
            "Compare runs made from the same texts with the same window options."
        )
    return np.fromiter((where[window_id] for window_id in first_ids), dtype=np.int64, count=len(first_ids))


def mcnemar(first_hits: ArrayLike, second_hits: ArrayLike) -> McNemar:
    """McNemar's exact and mid-p tests on paired hits. Without a differing window both are 1: no evidence at all."""
    first, second = np.asarray(first_hits, dtype=np.bool_), np.asarray(second_hits, dtype=np.bool_)
    if first.shape != second.shape:
        raise RunError(f"{first.size} hits against {second.size}; a paired test needs the same windows in both runs.")
    only_first, only_second = int(np.sum(first & ~second)), int(np.sum(~first & second))
    differing, smaller = only_first + only_second, min(only_first, only_second)
    tail = float(special.bdtr(smaller, differing, 0.5)) if differing else 1.0
    log_point = special.gammaln(differing + 1) - special.gammaln(smaller + 1) - special.gammaln(differing - smaller + 1)
    point = math.exp(float(log_point) - differing * math.log(2.0))
    both, neither = int(np.sum(first & second)), int(np.sum(~first & ~second))
    return McNemar(both, only_first, only_second, neither, min(1.0, 2.0 * tail), min(1.0, 2.0 * tail - point))


def compare_rates(
    first: Outcomes,
    second: Outcomes,
    *,
    places: Places | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Comparison:
    """The difference of two hit rates over the same windows. `places` are those of the first run's windows."""
    for outcomes in (first, second):
        if not np.all((outcomes.values == 0.0) | (outcomes.values == 1.0)):
            raise ConfigError("Hits must be 0 or 1 for each window; for other values compare means.")
    return _compare(first, second, places, seed, resamples, level, with_mcnemar=True)


def compare_means(
    first: Outcomes,
    second: Outcomes,
    *,
    places: Places | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Comparison:
    """The difference of two means over the same windows, for any finite quantity."""
    return _compare(first, second, places, seed, resamples, level, with_mcnemar=False)


def unpaired_difference(first: Rate, second: Rate) -> Interval:
    """Second minus first for rates of different windows (Newcombe's interval from the two rates' own intervals).

    Works for clustered rates too, since it takes nothing but values and intervals; the levels must agree.
    """
    if first.interval.level != second.interval.level:
        raise ConfigError(f"Levels {first.interval.level} and {second.interval.level} differ; use one level for both.")
    for side in (first, second):
        if not side.interval.is_defined:
            return undefined(f"one of the rates has no interval: {side.interval.reason}", level=first.interval.level)
    difference = second.value - first.value
    down = math.hypot(second.value - second.interval.low, first.interval.high - first.value)
    up = math.hypot(second.interval.high - second.value, first.value - first.interval.low)
    return Interval(difference - down, difference + up, first.interval.level)


def _compare(
    first: Outcomes,
    second: Outcomes,
    places: Places | None,
    seed: int,
    resamples: int,
    level: float,
    *,
    with_mcnemar: bool,
) -> Comparison:
    check_level(level)
    matched = second.values[align(first.window_ids, second.window_ids)]
    differences = matched - first.values
    units = _units_of(first, places, differences)
    interval, p_value = _bootstrap(differences, units, seed=seed, resamples=resamples, level=level)
    return Comparison(
        first=float(first.values.mean()),
        second=float(matched.mean()),
        difference=float(differences.mean()),
        interval=interval,
        p_value=p_value,
        n=differences.size,
        method=RateMethod.BY_WINDOW if places is None else METHOD_OF_KIND[units.kind],
        units=units.drawn,
        mcnemar=mcnemar(first.values, matched) if with_mcnemar else None,
    )


class _Bootstrapped(NamedTuple):
    interval: Interval
    p_value: float


def _bootstrap(differences: FloatArray, units: Units, *, seed: int, resamples: int, level: float) -> _Bootstrapped:
    """Percentiles of resampled means, moved outward as Student's quantile is, so that few units do not undercover."""
    if units.drawn < 2:
        return _Bootstrapped(undefined("fewer than two independent documents or blocks", level=level), math.nan)
    variance = units.variance_of_mean(differences)
    if variance <= 0.0:
        reason = "all documents or blocks differ by the same amount, so the spread cannot be estimated"
        return _Bootstrapped(undefined(reason, level=level), math.nan)
    means = units.bootstrap_means(differences, resamples=resamples, generator=np.random.default_rng(seed))
    degrees = units.drawn - 1
    tail = float(special.ndtr(-math.sqrt(units.drawn / degrees) * student_quantile(level, degrees)))
    low, high = np.quantile(means, [tail, 1.0 - tail])
    p_value = 2.0 * float(special.stdtr(degrees, -abs(float(differences.mean())) / math.sqrt(variance)))
    return _Bootstrapped(Interval(float(low), float(high), level), p_value)


def _units_of(outcomes: Outcomes, places: Places | None, differences: FloatArray) -> Units:
    """Documents or blocks where the windows' places are known, otherwise every window by itself."""
    count = len(outcomes.window_ids)
    if count == 0:
        raise RunError("The runs hold no windows; there is nothing to compare.")
    if places is None:
        return document_units(Places.of(outcomes.window_ids, np.zeros(count, dtype=np.int64), window_chars=1))
    if len(places) != count:
        raise RunError(f"{count} windows but {len(places)} places; give the places of the first run's windows.")
    return choose_units(places, differences)
