"""(n, p) and (ε, n, p) rate curves from a finished run: no model needed.

A window is extractable within n queries with probability p iff `queries_needed(p_z, p) ≤ n`. A curve gives the share
of such windows against n, with intervals that hold for overlapping windows when their places are known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rote.errors import ConfigError
from rote.stats.clustered import rate_over_units
from rote.stats.intervals import Rate, rate
from rote.stats.queries import FloatArray, queries_needed_from_log
from rote.stats.units import Places, Units, choose_units

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
