"""Counterfactual memorization, and how well the cheap log-ratio agrees with it.

    mem(s | p) = mean over models trained with the sequence of log P(s|p)
               − mean over models trained without it of log P(s|p)

The agreement is Pearson's correlation over (target, level) cells. Cells of one target share its text, so the interval
comes from resampling whole targets; Fisher's interval, which takes cells as independent, stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from byrote.stats.intervals import normal_quantile, undefined
from byrote.types import Interval

RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class CounterfactualCell:
    """One target at one level; log-probabilities of its suffix after its prefix, one per model."""

    target: int
    copies: int
    near_duplicates: int
    log_p_with: tuple[float, ...]
    log_p_without: tuple[float, ...]
    log_priors: tuple[float, ...]
    """log v̂_s of the models trained with the copies."""

    @property
    def counterfactual(self) -> float:
        without = math.fsum(self.log_p_without) / len(self.log_p_without)
        return math.fsum(self.log_p_with) / len(self.log_p_with) - without

    @property
    def log_ratio(self) -> float:
        """Mean of log P(s|p)/v̂_s over the models trained with the copies: it needs no other model."""
        return (math.fsum(self.log_p_with) - math.fsum(self.log_priors)) / len(self.log_p_with)


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r with two intervals; NaN with a reason where it is undefined."""

    value: float
    by_target: Interval
    """Percentile bootstrap, whole targets resampled."""
    fisher: Interval
    """Cells taken as independent."""
    cells: int
    targets: int


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's r; NaN when a side does not vary or fewer than two points are given."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.size < 2:
        return math.nan
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale > 0 else math.nan


def fisher_interval(r: float, cells: int) -> Interval:
    """tanh(atanh r ± z/√(n − 3)) at 95 %."""
    if math.isnan(r) or cells < 4:
        return undefined("a correlation over fewer than 4 varying points has no interval")
    if abs(r) >= 1:
        return Interval(r, r)
    half = normal_quantile(0.95) / math.sqrt(cells - 3)
    return Interval(math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def correlate(
    x: ArrayLike, y: ArrayLike, targets: Sequence[int], *, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Correlation:
    """Correlation over cells with both 95 % intervals; cells with equal `targets` are resampled together."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    names = np.asarray(targets)
    groups = [np.flatnonzero(names == name) for name in np.unique(names)]
    r = correlation(first, second)
    if math.isnan(r):
        by_target = undefined("the cells do not vary")
    elif len(groups) < 2:
        by_target = undefined("one target cannot be resampled")
    else:
        drawn = []
        for _ in range(resamples):
            cells = np.concatenate([groups[pick] for pick in generator.integers(0, len(groups), len(groups))])
            drawn.append(correlation(first[cells], second[cells]))
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        by_target = Interval(float(low), float(high))
    return Correlation(r, by_target, fisher_interval(r, first.size), int(first.size), len(groups))
