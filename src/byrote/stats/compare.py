"""Correction for asking many questions of the same data. NaN p-values (no test was possible) stay NaN, uncounted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from byrote.errors import ConfigError, RunError
from byrote.stats.clusters import METHOD_OF_KIND, FloatArray, IntArray, Places, Units, document_units, long_units
from byrote.stats.intervals import RateMethod, student_quantile, undefined
from byrote.types import Interval


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjusted p-values: rejecting those ≤ α makes any false rejection at most α likely, whatever the dependence."""
    values = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(values)
    if values.ndim != 1 or np.any((values[tested] < 0.0) | (values[tested] > 1.0)):
        raise ConfigError("p-values must be one list of numbers between 0 and 1.")
    adjusted = np.full(values.shape, np.nan)
    positions = np.flatnonzero(tested)
    rising = positions[np.argsort(values[positions], kind="stable")]
    left = np.arange(rising.size, 0, -1)
    adjusted[rising] = np.minimum(1.0, np.maximum.accumulate(values[rising] * left))
    return adjusted


LEVEL = 0.95


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


class Crossed(NamedTuple):
    """Windows by outcome in both runs."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray) -> "Crossed":
        hit, also = first > 0, second > 0
        return cls(*(int(np.sum(cell)) for cell in (hit & also, hit & ~also, ~hit & also, ~hit & ~also)))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Second minus first, over the same windows."""

    first: float
    second: float
    difference: float
    interval: Interval
    """Of the difference over documents or stretches of text; NaN with a reason when no window differs."""
    p_value: float
    """Of no difference, by the same variance and degrees of freedom; NaN where the interval is."""
    n: int
    method: RateMethod
    units: int
    crossed: Crossed | None = None
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


def compare_rates(first: Outcomes, second: Outcomes, *, places: Places | None = None) -> Comparison:
    """`compare_means` of hits, with the windows by outcome."""
    for outcomes in (first, second):
        if not np.all((outcomes.values == 0.0) | (outcomes.values == 1.0)):
            raise ConfigError("Hits must be 0 or 1 for each window; for other values compare means.")
    found = compare_means(first, second, places=places)
    return replace(found, crossed=Crossed.of(first.values, _matched(first, second)))


def compare_means(first: Outcomes, second: Outcomes, *, places: Places | None = None) -> Comparison:
    """The difference of two means over the same windows. `places` are those of the first run's windows."""
    matched = _matched(first, second)
    differences = matched - first.values
    units = _units_of(first, places, differences)
    interval, p_value = _student(differences, units, level=LEVEL)
    return Comparison(
        first=float(first.values.mean()),
        second=float(matched.mean()),
        difference=float(differences.mean()),
        interval=interval,
        p_value=p_value,
        n=differences.size,
        method=RateMethod.BY_WINDOW if places is None else METHOD_OF_KIND[units.kind],
        units=units.drawn,
    )


def _matched(first: Outcomes, second: Outcomes) -> FloatArray:
    return second.values[align(first.window_ids, second.window_ids)]


class _Tested(NamedTuple):
    interval: Interval
    p_value: float


def _student(differences: FloatArray, units: Units, *, level: float) -> _Tested:
    if units.drawn < 2:
        return _Tested(undefined("fewer than two independent documents or stretches of text", level=level), math.nan)
    mean, variance = float(differences.mean()), units.variance_of_mean(differences)
    # Equal sums may differ in the last bit.
    if math.sqrt(variance) <= 1e-12 * float(np.abs(differences).max()):
        reason = "all documents or stretches differ by the same amount, so the spread cannot be estimated"
        return _Tested(undefined(reason, level=level), math.nan)
    error, degrees = math.sqrt(variance), units.degrees
    half = student_quantile(level, degrees) * error
    p_value = 2.0 * float(special.stdtr(degrees, -abs(mean) / error))
    return _Tested(Interval(mean - half, mean + half, level), p_value)


def _units_of(outcomes: Outcomes, places: Places | None, differences: FloatArray) -> Units:
    """Documents or stretches where the windows' places are known, otherwise every window by itself."""
    count = len(outcomes.window_ids)
    if count == 0:
        raise RunError("The runs hold no windows; there is nothing to compare.")
    if places is None:
        return document_units(Places.of(outcomes.window_ids, np.zeros(count, dtype=np.int64), window_chars=1))
    if len(places) != count:
        raise RunError(f"{count} windows but {len(places)} places; give the places of the first run's windows.")
    return long_units(places, differences)
