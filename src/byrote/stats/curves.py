"""n ↔ p: how many queries until a window comes out with probability p, and back.

One query succeeds with probability p_z, so n queries succeed at least once with probability 1 − (1 − p_z)^n. All work
is done on log(1 − p_z) and on the log of its negative, so that p_z = 1e-300, p_z = 1 − 1e-12 and masses far below
the smallest float (given as logarithms) keep full precision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from byrote.errors import ConfigError
from byrote.stats.clusters import FloatArray, Places, choose_units, rate_over_units
from byrote.stats.intervals import Rate

Number = TypeVar("Number", float, FloatArray)

WHOLE_TOLERANCE = 1e-12
"""A real n this close (relatively) to a whole number is that number: three queries at p_z = 0.9 reach 0.999."""


def queries_needed(p_z: Number, p: float, *, whole: bool = True) -> Number:
    """The smallest n with 1 − (1 − p_z)^n ≥ p: inf where p_z = 0, 1 where p_z = 1; inf beyond the largest float.

    `whole=False` gives the real solution instead, which `probability_within` turns back into p.
    """
    with np.errstate(divide="ignore"):
        return _like(p_z, _queries(np.log1p(-np.asarray(p_z)), p, whole=whole))


def queries_needed_from_log(log_p_z: Number, p: float, *, whole: bool = True) -> Number:
    """`queries_needed` for a mass given as its logarithm."""
    return _like(log_p_z, _queries(_log_miss(log_p_z), p, whole=whole))


def probability_within(log_p_z: Number, n: float) -> Number:
    """1 − (1 − p_z)^n: the probability of at least one success in n queries. A mass of 0 gives 0 even for n = inf."""
    log_miss = _log_miss(log_p_z)
    with np.errstate(invalid="ignore"):
        exponent = np.where((log_miss == 0.0) | (n == 0.0), 0.0, log_miss * n)
    return _like(log_p_z, np.asarray(-np.expm1(exponent)))


def _queries(log_miss: FloatArray, p: float, *, whole: bool) -> FloatArray:
    """Queries from log(1 − p_z): the one place where n is computed."""
    if not 0.0 <= p <= 1.0:
        raise ConfigError(f"Success probability {p} is outside [0, 1]; use for example 0.5.")
    if p == 0.0:
        return np.zeros(log_miss.shape)
    target = math.log1p(-p) if p < 1.0 else -math.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        real = np.abs(target / log_miss)
    real = np.where(np.isneginf(log_miss), 1.0, np.where(log_miss == 0.0, math.inf, real))
    if not whole:
        return np.asarray(real)
    nearest = np.rint(real)
    with np.errstate(invalid="ignore"):
        is_whole = np.abs(real - nearest) <= WHOLE_TOLERANCE * real
    return np.asarray(np.maximum(1.0, np.where(is_whole, nearest, np.ceil(real))))


def _log_miss(log_p_z: ArrayLike) -> FloatArray:
    """log(1 − p_z) without cancellation on either side of log ½. Summed logarithms may exceed 0 by rounding."""
    log_p = np.minimum(log_p_z, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(log_p > -math.log(2.0), np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p))))


def _like(given: Number, answer: FloatArray) -> Number:
    """A float for a float, an array for an array."""
    if isinstance(given, np.ndarray):
        return answer
    return float(answer)


PROBABILITIES = (0.1, 0.5, 0.9, 0.999)


class MassKind(StrEnum):
    """What the masses behind a curve are, and so what the curve is."""

    EXACT = "exact"
    """Probabilities of the verbatim suffix: the curve is the rate."""
    LOWER_BOUND = "lower_bound"
    """Certified lower bounds: the queries needed are at most this, the rate is at least this."""


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The share of windows extractable within `queries[i]` queries with probability `p`: `rates[i]`."""

    p: float
    queries: tuple[float, ...]
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class RateCurves:
    """One curve per success probability over the same windows."""

    curves: tuple[RateCurve, ...]
    worst_case: Rate
    """The share with any probability at all: the limit of every curve as n grows without bound."""
    mass_kind: MassKind

    @property
    def windows(self) -> int:
        return self.worst_case.n


def query_grid(largest: float, per_decade: int = 4) -> tuple[float, ...]:
    """Whole numbers of queries from 1 to `largest`, evenly spaced on a log axis, without repeats."""
    steps = math.ceil(math.log10(largest) * per_decade - 1e-9)
    points = {min(float(round(10 ** (step / per_decade))), math.floor(largest)) for step in range(steps + 1)}
    return tuple(sorted(points | {float(math.floor(largest))}))


def rate_curves(
    log_masses: ArrayLike,
    places: Places,
    *,
    queries: Sequence[float],
    probabilities: Sequence[float] = PROBABILITIES,
    mass_kind: MassKind = MassKind.EXACT,
) -> RateCurves:
    """Curves of one set of windows, of which there is at least one."""
    logs = np.asarray(log_masses, dtype=np.float64)
    # Ranks, not masses: the criteria are thresholds on the mass, and −inf has a rank.
    ranks = np.unique(logs, return_inverse=True)[1].reshape(-1).astype(np.float64)
    units = choose_units(places, ranks)
    known: dict[int, Rate] = {}

    def rate_of(hits: NDArray[np.bool_]) -> Rate:
        # Hit sets are nested: every one is {mass ≥ something}, so its size identifies it.
        count = int(hits.sum())
        if count not in known:
            known[count] = rate_over_units(hits, units)
        return known[count]

    curves = []
    for p in probabilities:
        needed = queries_needed_from_log(logs, p)
        curves.append(RateCurve(p, tuple(queries), tuple(rate_of(needed <= n) for n in queries)))
    return RateCurves(tuple(curves), rate_of(logs > -math.inf), mass_kind)
