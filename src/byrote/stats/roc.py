"""How well a score tells two groups apart, and a threshold from one of them at a stated rate of false positives.

Positives are what should score high, negatives (controls) what should not. Ties count half in the area under the curve;
a threshold never divides them.
"""

import math
from decimal import ROUND_FLOOR, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.stats.clusters import FloatArray, Units
from byrote.stats.intervals import LEVEL, student_quantile, undefined
from byrote.types import Interval


class RocCurve(NamedTuple):
    """Shares of positives and of negatives above every threshold, from above all scores to below all of them."""

    false_positives: FloatArray
    true_positives: FloatArray


class Separation(NamedTuple):
    """The area under the curve: the chance that a positive scores higher than a negative, ties half."""

    auc: float
    interval: Interval


def roc_curve(positives: FloatArray, negatives: FloatArray) -> RocCurve:
    """One point for every distinct score, and the point (0, 0) before them."""
    thresholds = np.unique(np.concatenate([positives, negatives]))[::-1]
    counts = [len(scores) - np.searchsorted(np.sort(scores), thresholds) for scores in (negatives, positives)]
    return RocCurve(*(np.concatenate([[0], count]) / count[-1] for count in counts))


def found_at(positives: FloatArray, negatives: FloatArray, false_positive_rate: float) -> NDArray[np.bool_]:
    """Which positives are found by the lowest threshold that at most this share of the negatives reaches."""
    # 0.001 · 3000 is 2.9999999999999996 in floats.
    allowed = math.floor(false_positive_rate * len(negatives) + 1e-9)
    if allowed >= len(negatives):
        return np.ones(len(positives), dtype=np.bool_)
    return np.asarray(positives > np.sort(negatives)[::-1][allowed])


def placements(scores: FloatArray, others: FloatArray) -> FloatArray:
    """For each score the share of the others below it, ties half."""
    ascending = np.sort(others)
    below = np.searchsorted(ascending, scores, side="left") + np.searchsorted(ascending, scores, side="right")
    return np.asarray(below / (2 * len(others)))


def separation(
    positives: FloatArray, negatives: FloatArray, units_of_positives: Units, units_of_negatives: Units
) -> Separation:
    """AUC with an interval that holds although windows overlap.

    The variance is DeLong's with units in place of windows: that of the mean placement of the positives among the
    negatives, and that of the negatives among the positives.
    """
    placed = placements(positives, negatives)
    auc = float(placed.mean())
    variance = units_of_positives.variance_of_mean(placed)
    variance += units_of_negatives.variance_of_mean(placements(negatives, positives))
    units = min(units_of_positives.drawn, units_of_negatives.drawn)
    if units < 2:
        return Separation(auc, undefined("one side is a single unit, so no spread can be seen"))
    if not variance > 0:
        return Separation(auc, undefined("all units agree, so no spread can be seen"))
    degrees = min(units_of_positives.degrees, units_of_negatives.degrees)
    reach = student_quantile(LEVEL, degrees) * math.sqrt(variance)
    return Separation(auc, Interval(max(0.0, auc - reach), min(1.0, auc + reach), LEVEL))


class ControlThreshold(NamedTuple):
    """A threshold from controls. `value` is None where so few of them cannot have it, and `reason` says so."""

    value: float | None
    reason: str | None = None


def threshold_from_controls(scores: FloatArray, false_positive_rate: float) -> ControlThreshold:
    """The least τ of three digits such that a further control reaches it with at most this probability.

    With n controls and j = ⌊rate · (n + 1)⌋, τ lies above the j-th largest of them. A further one, exchangeable with
    them, is above that with probability at most j/(n + 1), ties or not, whatever the distribution.
    """
    allowed = math.floor(false_positive_rate * (len(scores) + 1) + 1e-9)
    if allowed < 1:
        needed = math.ceil(1 / false_positive_rate - 1e-9) - 1
        return ControlThreshold(
            None,
            f"a false-positive rate of {false_positive_rate:g} cannot be had from {len(scores):,} controls; it takes "
            f"{needed:,} or more",
        )
    largest = float(np.sort(scores)[::-1][allowed - 1])
    above = rounded_up(largest)
    if above > 1:
        return ControlThreshold(None, f"{allowed:,} controls have a probability of {largest:.4g}")
    return ControlThreshold(above)


def rounded_up(value: float) -> float:
    """The least number of three digits above a probability; the least float above 0."""
    if value <= 0:
        return math.ulp(0.0)
    written = Decimal(repr(value))
    digit = Decimal((0, (1,), written.adjusted() - 2))
    rounded = written.quantize(digit, ROUND_FLOOR)
    # The nearest float of a short decimal may be the value itself.
    while float(rounded) <= value:
        rounded += digit
    return float(rounded)
