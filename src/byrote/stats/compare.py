"""Two runs on the same windows, and Holm's correction for asking many questions of the same data."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from byrote.deferred import Deferred
from byrote.stats.clusters import FloatArray, Places, Units, long_units
from byrote.stats.intervals import LEVEL, RateMethod, student_quantile, undefined
from byrote.types import Interval

special = Deferred("scipy.special")


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjusted p-values: rejecting those ≤ α makes any false rejection at most α likely, whatever the dependence.

    NaN p-values (no test was possible) stay NaN, uncounted.
    """
    values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    positions = np.flatnonzero(~np.isnan(values))
    rising = positions[np.argsort(values[positions], kind="stable")]
    left = np.arange(rising.size, 0, -1)
    adjusted[rising] = np.minimum(1.0, np.maximum.accumulate(values[rising] * left))
    return adjusted


class Crossed(NamedTuple):
    """Windows by outcome in both runs."""

    both: int
    only_first: int
    only_second: int
    neither: int


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


def compare_rates(first: NDArray[np.bool_], second: NDArray[np.bool_], places: Places) -> Comparison:
    """`compare_means` of hits, with the windows by outcome."""
    found = compare_means(first.astype(np.float64), second.astype(np.float64), places)
    cells = (first & second, first & ~second, ~first & second, ~first & ~second)
    return replace(found, crossed=Crossed(*(int(cell.sum()) for cell in cells)))


def compare_means(first: FloatArray, second: FloatArray, places: Places) -> Comparison:
    """The difference of two means over the same windows, in the same order."""
    differences = second - first
    units = long_units(places, differences)
    interval, p_value = _student(differences, units)
    return Comparison(
        first=float(first.mean()),
        second=float(second.mean()),
        difference=float(differences.mean()),
        interval=interval,
        p_value=p_value,
        n=differences.size,
        method=units.method,
        units=units.drawn,
    )


def _student(differences: FloatArray, units: Units) -> tuple[Interval, float]:
    """Student's interval of the mean difference, and the p-value of none."""
    if units.drawn < 2:
        return undefined("fewer than two independent documents or stretches of text"), math.nan
    mean, error = float(differences.mean()), math.sqrt(units.variance_of_mean(differences))
    # Equal sums may differ in the last bit.
    if error <= 1e-12 * float(np.abs(differences).max()):
        reason = "all documents or stretches differ by the same amount, so the spread cannot be estimated"
        return undefined(reason), math.nan
    half = student_quantile(LEVEL, units.degrees) * error
    p_value = 2.0 * float(special.stdtr(units.degrees, -abs(mean) / error))
    return Interval(mean - half, mean + half, LEVEL), p_value
