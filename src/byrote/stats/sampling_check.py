"""Do sampled hits agree with the computed probabilities? An exact test per window, one overall, and a table.

Each window has a computed probability p_z and was sampled M times with k hits. If the computation is right,
k is binomial(M, p_z).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from byrote.errors import ConfigError
from byrote.stats.compare import holm
from byrote.stats.intervals import exact_interval
from byrote.types import Interval

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SIMULATIONS = 2000


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """Windows whose computed probability lies in [low, high)."""

    low: float
    high: float
    windows: int
    samples: int
    expected_hits: float
    hits: int
    computed: float
    """Mean computed probability, weighted by samples."""
    sampled: float
    """Hits over samples."""
    interval: Interval
    """Exact interval of the sampled share."""


@dataclass(frozen=True, eq=False)
class SamplingCheck:
    """How well sampled hits agree with computed probabilities."""

    p_values: FloatArray
    """Per window, two-sided and exact; NaN where nothing was sampled; 0 where a hit was impossible."""
    adjusted: FloatArray
    """The same after Holm's correction."""
    overall_p_value: float
    """Of Σ (k − Mp)²/(Mp(1 − p)), against simulations of the same windows: finds small errors spread over many
    windows. NaN when no window could vary."""
    reason: str | None
    """Why the overall p-value is NaN."""
    table: tuple[CalibrationRow, ...]

    @property
    def smallest_adjusted(self) -> float:
        """The chance of a window at least this far off if all probabilities are right; NaN without a test."""
        return float(np.nanmin(self.adjusted)) if not np.isnan(self.adjusted).all() else math.nan

    def agrees(self, significance: float = 0.01) -> bool:
        """Neither the overall test nor any window (corrected) rejects; false alarm at most 2 × significance."""
        return not (self.overall_p_value <= significance or self.smallest_adjusted <= significance)


def check_sampling(
    probabilities: ArrayLike, hits: ArrayLike, samples: ArrayLike, *, seed: int = 0, simulations: int = SIMULATIONS
) -> SamplingCheck:
    """Compare k hits in M samples per window with the computed probabilities."""
    p = np.asarray(probabilities, dtype=np.float64)
    k = np.asarray(hits, dtype=np.int64)
    m = np.broadcast_to(np.asarray(samples, dtype=np.int64), k.shape)
    _check(p, k, m)
    p_values = binomial_p_values(p, k, m)
    overall = _overall_p_value(p, k, m, generator=np.random.default_rng(seed), simulations=simulations)
    reason = "no window was sampled whose outcome could vary" if math.isnan(overall) else None
    return SamplingCheck(p_values, holm(p_values), overall, reason, calibration_table(p, k, m))


def binomial_p_values(probabilities: FloatArray, hits: IntArray, samples: IntArray) -> FloatArray:
    """Twice the smaller exact tail, at most 1; NaN for windows without samples."""
    p, k, m = probabilities, hits.astype(np.float64), samples.astype(np.float64)
    inside = np.clip(p, 1e-320, 1.0 - 1e-16)
    # The regularised incomplete beta function is the binomial tail, without a sum over outcomes.
    at_least = np.where(k == 0, 1.0, special.betainc(np.maximum(k, 1), m - k + 1, inside))
    at_most = np.where(k == m, 1.0, special.betaincc(k + 1, np.maximum(m - k, 1), inside))
    two_sided = np.minimum(1.0, 2.0 * np.minimum(at_least, at_most))
    certain = (p == 0.0) | (p == 1.0)
    two_sided = np.where(certain, np.where(k == m * p, 1.0, 0.0), two_sided)
    return np.asarray(np.where(m == 0, np.nan, two_sided))


def calibration_table(probabilities: FloatArray, hits: IntArray, samples: IntArray) -> tuple[CalibrationRow, ...]:
    """Sampled windows by decade of computed probability, smallest first; probability 0 is a row of its own."""
    sampled = samples > 0
    p, k, m = probabilities[sampled], hits[sampled], samples[sampled]
    with np.errstate(divide="ignore"):
        decade = np.where(p > 0.0, np.minimum(np.floor(np.log10(p)), -1.0), -np.inf)
    rows = []
    for exponent in np.unique(decade):
        chosen = decade == exponent
        total, hit = int(m[chosen].sum()), int(k[chosen].sum())
        expected = float((m[chosen] * p[chosen]).sum())
        low, high = (0.0, 0.0) if math.isinf(exponent) else (10.0**exponent, 10.0 ** (exponent + 1))
        rows.append(
            CalibrationRow(
                low=low,
                high=high,
                windows=int(chosen.sum()),
                samples=total,
                expected_hits=expected,
                hits=hit,
                computed=expected / total,
                sampled=hit / total,
                interval=exact_interval(hit, total),
            )
        )
    return tuple(rows)


def _overall_p_value(
    p: FloatArray, k: IntArray, m: IntArray, *, generator: np.random.Generator, simulations: int
) -> float:
    """The share of simulated runs (the observed one among them) whose statistic is at least the observed one."""
    can_vary = (m > 0) & (p > 0.0) & (p < 1.0)
    if not can_vary.any():
        return math.nan
    chance, trials, seen = p[can_vary], m[can_vary], k[can_vary]
    mean, variance = trials * chance, trials * chance * (1.0 - chance)
    observed = float(np.sum((seen - mean) ** 2 / variance))
    as_extreme = 1
    for _ in range(simulations):
        drawn = generator.binomial(trials, chance)
        as_extreme += float(np.sum((drawn - mean) ** 2 / variance)) >= observed
    return as_extreme / (simulations + 1)


def _check(p: FloatArray, k: IntArray, m: IntArray) -> None:
    if p.shape != k.shape or p.ndim != 1:
        raise ConfigError(f"{p.size} probabilities but {k.size} hit counts; give one of each per window.")
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ConfigError("A computed probability is outside [0, 1] or NaN; leave out windows without one.")
    if not np.all((k >= 0) & (k <= m)):
        raise ConfigError("A window has more hits than samples, or fewer than 0; hits lie between 0 and the samples.")
