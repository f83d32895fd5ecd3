"""Intervals for rates of windows that overlap or share a document.

Overlapping windows repeat each other's evidence, so a plain interval is too narrow. Here the unit of evidence is a
document, or a block of text (see `rote.stats.units`).

**Rates.** With estimated design effect d = variance/(share·(1 − share)/n), the interval is Clopper and Pearson's with
n/d windows in place of n, fewer still where Student's quantile is larger than the normal one (Korn and Graubard).
Three rules keep it honest:

- d is at least 1, so that a lucky estimate never claims more evidence than n independent windows, and at least what
  the windows' agreement inside documents implies for documents of these sizes: a few hits in small documents say
  nothing about the spread that a large one would bring;
- Student's degrees of freedom are at most the units that hold the rarer outcome, because a variance carried by three
  units is known no better than three numbers allow, however many empty units surround them;
- d never needs to exceed its value when all windows of a unit agree, which is known without estimation. At 0 or n
  hits nothing can be estimated and this largest d is used: each unit then counts once, and the interval keeps a
  positive width.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rote.errors import ConfigError
from rote.stats.intervals import (
    Rate,
    RateMethod,
    check_level,
    exact_share_interval,
    normal_quantile,
    student_quantile,
    undefined,
)
from rote.stats.units import FloatArray, Places, UnitKind, Units, choose_units

METHOD_OF_KIND = {UnitKind.DOCUMENT: RateMethod.BY_DOCUMENT, UnitKind.BLOCK: RateMethod.BY_BLOCK}


def rate_with_clusters(
    hits: ArrayLike,
    documents: ArrayLike,
    char_starts: ArrayLike,
    *,
    window_chars: int,
    kind: UnitKind | None = None,
    block_chars: int | None = None,
    level: float = 0.95,
) -> Rate:
    """The share of windows that hit, with an interval that holds for overlapping windows.

    Many documents are the units themselves; one book is cut into blocks; `Rate.method` and `Rate.units` tell which.
    """
    check_level(level)
    places = Places.of(documents, char_starts, window_chars=window_chars)
    if len(places) == 0:
        return Rate(math.nan, undefined("no windows, so no rate", level=level), 0, RateMethod.BY_DOCUMENT, 0, math.nan)
    values = _one_value_per_window(hits, len(places))
    return rate_over_units(values, choose_units(places, values, kind=kind, block_chars=block_chars), level=level)


def rate_over_units(hits: ArrayLike, units: Units, *, level: float = 0.95) -> Rate:
    """`rate_with_clusters` for units already chosen: many criteria over the same windows share them."""
    outcome = _one_value_per_window(hits, units.order.size)
    if not np.all((outcome == 0.0) | (outcome == 1.0)):
        raise ConfigError("Hits must be true or false for each window.")
    share, n = float(outcome.mean()), outcome.size
    if units.drawn < 2:
        interval, effect = undefined(_too_few(units), level=level), math.nan
    else:
        effect, effective = _evidence(outcome, units, level=level)
        interval = exact_share_interval(share, effective, level=level)
    return Rate(share, interval, n, METHOD_OF_KIND[units.kind], units.drawn, effect)


class _Evidence(NamedTuple):
    design_effect: float
    effective: float
    """Independent windows that would say as much, fewer where the design effect itself is known badly."""


def _evidence(outcome: FloatArray, units: Units, *, level: float) -> _Evidence:
    """The three rules of the module's docstring."""
    n, share = outcome.size, float(outcome.mean())
    largest = units.largest_design_effect()
    if share in (0.0, 1.0):
        return _Evidence(largest, n / largest)
    implied = 1.0 + (largest - 1.0) * _agreement(outcome, units)
    estimated = max(1.0, implied, units.variance_of_mean(outcome) * n / (share * (1.0 - share)))
    degrees = min(units.degrees, _units_with_rarer_outcome(outcome, units))
    fewer = (normal_quantile(level) / student_quantile(level, degrees)) ** 2
    return _Evidence(min(estimated, largest), max(n / estimated * fewer, n / largest))


def _agreement(outcome: FloatArray, units: Units) -> float:
    """The correlation of two windows of a document (Fleiss and Cuzick), at least 0; 0 for sliding blocks."""
    n, share, count = outcome.size, float(outcome.mean()), units.sizes.size
    if not units.is_disjoint or n == count:
        return 0.0
    hits, sizes = units.sums(outcome), units.sizes.astype(np.float64)
    within = float((hits * (sizes - hits) / sizes).sum())
    return max(0.0, 1.0 - within / ((n - count) * share * (1.0 - share)))


def _units_with_rarer_outcome(outcome: FloatArray, units: Units) -> int:
    """How many of the units of one draw hold the rarer outcome, at least 1."""
    rarer = outcome if outcome.mean() <= 0.5 else 1.0 - outcome
    share_of_units = float(np.mean(units.sums(rarer) > 0.5))
    return max(1, round(share_of_units * units.drawn))


def _one_value_per_window(values: ArrayLike, windows: int) -> FloatArray:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (windows,):
        raise ConfigError(f"{numbers.size} values for {windows} windows; give exactly one per window.")
    if np.isnan(numbers).any():
        raise ConfigError(f"{int(np.isnan(numbers).sum())} windows have no value (NaN); leave them out first.")
    return numbers


def _too_few(units: Units) -> str:
    if units.kind is UnitKind.DOCUMENT:
        return "one document: its windows say nothing about how documents differ"
    return f"the text is shorter than two blocks of {units.block_chars} characters"
