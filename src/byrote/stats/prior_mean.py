"""How likely a suffix is after any prefix: the mean of P(s|q) over prefixes of a reference corpus.

    v̂_s = (1/c) Σ P(s | q_i)       over prefixes q_i drawn independently, or over every prefix of the corpus

v̂_s is unbiased for P(s) and its variance is at most 1/(4c), because probabilities lie in [0, 1]. Prefixes that overlap
in their text are no new information: errors and limits count independent ones, at most c. All sums are kept as
logarithms: probabilities of fifty tokens are far below the smallest float.
A few prefixes may carry nearly all of v̂_s; the effective number of prefixes says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from byrote.deferred import Deferred
from byrote.stats.intervals import check_level
from byrote.types import Interval

special = Deferred("scipy.special")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PriorEstimate:
    """v̂_s of one suffix from `draws` prefixes. A suffix that no prefix allows has log mean −inf and NaN errors."""

    log_mean: float
    relative_error: float
    """Standard error of v̂_s divided by v̂_s; the standard error of its logarithm to first order."""
    effective_prefixes: float
    """(Σ P)² / Σ P²: how many equally likely prefixes would carry the estimate; between 1 and the draws."""
    largest_share: float
    """Share of v̂_s that comes from the heaviest single prefix."""
    draws: int
    trial_log_means: tuple[float, ...]
    independent: float
    """Prefixes that errors and limits count; infinite where P(s) is known."""

    @property
    def standard_error(self) -> float:
        return math.exp(self.log_mean) * self.relative_error


@dataclass(frozen=True, slots=True)
class PriorSums:
    """Running sums over prefixes; sums of disjoint sets of prefixes add up, in any grouping."""

    log_sums: Floats  # [trials, suffixes]: log Σ P
    log_squares: Floats  # [suffixes]: log Σ P², all trials together
    log_largest: Floats  # [suffixes]: log of the largest contribution of one prefix
    draws: NDArray[np.int64]  # [trials]

    @classmethod
    def empty(cls, trials: int, suffixes: int) -> "PriorSums":
        nothing = np.full((trials, suffixes), -np.inf)
        return cls(nothing, nothing[0].copy(), nothing[0].copy(), np.zeros(trials, dtype=np.int64))

    @classmethod
    def of(cls, log_p: Floats, counts: NDArray[np.int64]) -> "PriorSums":
        """Sums of `log_p` [prefixes, suffixes], prefix i drawn `counts[i, t]` times in trial t."""
        with np.errstate(divide="ignore"):
            log_counts = np.log(counts.astype(np.float64))  # [prefixes, trials]
        log_all = np.logaddexp.reduce(log_counts, axis=1)[:, None]  # [prefixes, 1]
        log_sums = np.stack([special.logsumexp(log_p + of_trial[:, None], axis=0) for of_trial in log_counts.T])
        log_squares = special.logsumexp(2 * log_p + log_all, axis=0)
        return cls(log_sums, log_squares, (log_p + log_all).max(axis=0), counts.sum(axis=0))

    def add(self, other: "PriorSums") -> "PriorSums":
        return PriorSums(
            np.logaddexp(self.log_sums, other.log_sums),
            np.logaddexp(self.log_squares, other.log_squares),
            np.maximum(self.log_largest, other.log_largest),
            self.draws + other.draws,
        )

    def estimates(self, *, independent: float | None = None) -> list[PriorEstimate]:
        """One estimate per suffix over all trials together; all draws are independent unless a number is given."""
        with np.errstate(divide="ignore"):
            trial_means = self.log_sums - np.log(self.draws)[:, None]
        columns = (special.logsumexp(self.log_sums, axis=0), self.log_squares, self.log_largest, trial_means.T)
        draws = int(self.draws.sum())
        counted = draws if independent is None else independent
        return [
            _estimate(total, squares, largest, draws, tuple(trials), counted)
            for total, squares, largest, trials in zip(*(column.tolist() for column in columns), strict=True)
        ]


def _estimate(
    log_total: float, log_squares: float, log_largest: float, draws: int, trials: tuple[float, ...], independent: float
) -> PriorEstimate:
    if log_total == -math.inf:
        return PriorEstimate(-math.inf, math.nan, math.nan, math.nan, draws, trials, independent)
    # Rounding may push Kish's number a hair outside its range.
    effective = min(max(math.exp(2 * log_total - log_squares), 1.0), float(draws))
    # As if the prefixes of one stretch of text were equal, which is the worst they can be.
    relative = math.sqrt(max(draws / effective - 1.0, 0.0) / (independent - 1)) if independent > 1 else math.nan
    return PriorEstimate(
        log_mean=log_total - math.log(draws),
        relative_error=relative,
        effective_prefixes=max(1.0, effective * min(1.0, independent / draws)),
        largest_share=math.exp(log_largest - log_total),
        draws=draws,
        trial_log_means=trials,
        independent=independent,
    )


def log_mean(values: Sequence[float]) -> float:
    """log of the mean of exp(values)."""
    return float(special.logsumexp(values)) - math.log(len(values))


def log_ratio(log_conditional: float, log_prior: float) -> float:
    """log P(s|p)/v̂_s. A suffix impossible after its own prefix has ratio 0, whatever the prior."""
    return -math.inf if log_conditional == -math.inf else log_conditional - log_prior


REPETITIONS = 10_000
MOST_VALUES = 4_000_000


def predicted_log_mean(logs: Sequence[float], *, level: float = 0.95) -> Interval:
    """Covers the log of the mean of as many new independent values with the level, both ends failing equally often.

    Centre and spread are drawn from what the sample leaves open, ȳ + σZ/√k with σ² = (k − 1)s²/χ²_{k−1}, and new values
    from them. The same numbers for the same values: the draws are fixed. Fewer than two values exclude nothing.
    """
    check_level(level)
    values = np.asarray(logs, dtype=np.float64)
    if values.size < 2:
        return Interval(-math.inf, math.inf, level)
    spread = float(values.std(ddof=1))
    means = float(values.mean()) + special.logsumexp(spread * _repetitions(values.size), axis=1) - math.log(values.size)
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level)


@lru_cache(maxsize=8)
def _repetitions(size: int) -> NDArray[np.float64]:
    """[repetitions, size]: new values in units of the sample's spread, from its centre."""
    rows = max(2_000, min(REPETITIONS, MOST_VALUES // size))
    generator = np.random.default_rng([size, 3])
    sigma = np.sqrt((size - 1) / generator.chisquare(size - 1, (rows, 1)))
    centre = generator.standard_normal((rows, 1)) / math.sqrt(size)
    return np.asarray(sigma * (centre + generator.standard_normal((rows, size))))
