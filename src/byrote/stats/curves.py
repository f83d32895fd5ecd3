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
from byrote.stats.clusters import Places, Units, choose_units, rate_over_units
from byrote.stats.intervals import Rate, rate

FloatArray = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)

WHOLE_TOLERANCE = 1e-12
"""A real n this close (relatively) to a whole number is that number: three queries at p_z = 0.9 reach 0.999."""
EXCESS_TOLERANCE = 1e-9
"""Summed masses may exceed 1 by rounding; up to this much is read as 1."""


def queries_needed(p_z: Number, p: float, *, whole: bool = True) -> Number:
    """The smallest n with 1 − (1 − p_z)^n ≥ p: inf where p_z = 0, 1 where p_z = 1; inf beyond the largest float.

    `whole=False` gives the real solution instead, which `probability_within` turns back into p.
    """
    masses = _probabilities(p_z)
    with np.errstate(divide="ignore"):
        log_miss = np.log1p(-masses)
    return _like(p_z, _queries(log_miss, p, whole=whole))


def queries_needed_from_log(log_p_z: Number, p: float, *, whole: bool = True) -> Number:
    """`queries_needed` for a mass given as its logarithm."""
    return _like(log_p_z, _queries(_log_one_minus_exp(_log_probabilities(log_p_z)), p, whole=whole))


def probability_within(log_p_z: Number, n: float) -> Number:
    """1 − (1 − p_z)^n: the probability of at least one success in n queries. A mass of 0 gives 0 even for n = inf."""
    if not n >= 0.0:
        raise ConfigError(f"{n} queries is not a number of queries; give 0 or more.")
    log_miss = _log_one_minus_exp(_log_probabilities(log_p_z))
    with np.errstate(invalid="ignore"):
        exponent = np.where((log_miss == 0.0) | (n == 0.0), 0.0, log_miss * n)
    return _like(log_p_z, np.asarray(-np.expm1(exponent)))


def _queries(log_miss: FloatArray, p: float, *, whole: bool) -> FloatArray:
    """Queries from log(1 − p_z): the one place where n is computed."""
    _check_probability(p)
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


def _log_one_minus_exp(log_p: FloatArray) -> FloatArray:
    """log(1 − exp(log_p)) without cancellation on either side of log ½."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(log_p > -math.log(2.0), np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p))))


def _probabilities(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if not np.all((array >= 0.0) & (array <= 1.0 + EXCESS_TOLERANCE)):
        raise ConfigError("A probability is outside [0, 1] or NaN; leave out windows without a value.")
    return np.minimum(array, 1.0)


def _log_probabilities(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if not np.all(array <= EXCESS_TOLERANCE):
        raise ConfigError("A log-probability is above 0 or NaN; give natural logarithms of probabilities.")
    return np.minimum(array, 0.0)


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ConfigError(f"Success probability {p} is outside [0, 1]; use for example 0.5.")


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
    UPPER_BOUND = "upper_bound"
    """Certified upper bounds: the queries needed are at least this, the rate is at most this."""


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


def query_grid(largest: float = 1e6, per_decade: int = 4) -> tuple[float, ...]:
    """Whole numbers of queries from 1 to `largest`, evenly spaced on a log axis, without repeats."""
    if not 1.0 <= largest < math.inf or per_decade < 1:
        raise ConfigError(f"A grid to {largest} queries with {per_decade} points a decade is empty; give 1 or more.")
    steps = math.ceil(math.log10(largest) * per_decade - 1e-9)
    points = {min(float(round(10 ** (step / per_decade))), math.floor(largest)) for step in range(steps + 1)}
    return tuple(sorted(points | {float(math.floor(largest))}))


def rate_curves(
    log_masses: ArrayLike,
    places: Places | None = None,
    *,
    queries: Sequence[float] | None = None,
    probabilities: Sequence[float] = PROBABILITIES,
    mass_kind: MassKind = MassKind.EXACT,
    level: float = 0.95,
) -> RateCurves:
    """Curves of one set of windows. Without `places` the windows are taken as independent."""
    logs = np.asarray(log_masses, dtype=np.float64)
    if places is not None and len(places) != logs.size:
        raise ConfigError(f"{logs.size} masses but {len(places)} places; give one place per window.")
    units = None
    if places is not None and logs.size:
        # Ranks, not masses: the criteria are thresholds on the mass, and −inf has a rank.
        ranks = np.unique(logs, return_inverse=True)[1].reshape(-1).astype(np.float64)
        units = choose_units(places, ranks)
    rates = _NestedRates(logs, units, level)
    grid = tuple(queries) if queries is not None else query_grid()
    curves = []
    for p in probabilities:
        needed = queries_needed_from_log(logs, p)
        curves.append(RateCurve(p, grid, tuple(rates.of(needed <= n) for n in grid)))
    return RateCurves(tuple(curves), rates.of(logs > -math.inf), mass_kind)


class _NestedRates:
    """Rates of hit sets that are nested: every one is {mass ≥ something}, so its size identifies it."""

    def __init__(self, logs: FloatArray, units: Units | None, level: float) -> None:
        self._windows = logs.size
        self._units = units
        self._level = level
        self._known: dict[int, Rate] = {}

    def of(self, hits: NDArray[np.bool_]) -> Rate:
        count = int(hits.sum())
        if count not in self._known:
            self._known[count] = (
                rate(count, self._windows, level=self._level)
                if self._units is None
                else rate_over_units(hits, self._units, level=self._level)
            )
        return self._known[count]
