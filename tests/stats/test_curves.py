"""Rate curves against counting windows one by one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.stats.clusters import Places, choose_units, rate_over_units
from byrote.stats.curves import (
    PROBABILITIES,
    query_grid,
    rate_curves,
)
from byrote.stats.intervals import RateMethod, exact_interval

mass_lists = st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-12, 1.0)), min_size=1, max_size=30)


def logs_of(masses: list[float]) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(masses, dtype=np.float64))


def apart(windows: int) -> Places:
    """Every window in a document of its own."""
    return Places.of(np.arange(windows), np.zeros(windows), window_chars=1)


def is_extractable(mass: float, n: float, p: float) -> bool:
    """The criterion by its definition, with room for rounding at the boundary."""
    return 1 - (1 - mass) ** n >= p * (1 - 1e-9)


@given(mass_lists, st.sampled_from(PROBABILITIES))
def test_curve_equals_counting_windows_that_meet_the_criterion(masses: list[float], p: float) -> None:
    # A power of a rounded 1 − mass is only good for masses that are not tiny; those have their own tests.
    masses = [mass if mass > 1e-4 else 0.0 for mass in masses]
    (curve,) = rate_curves(logs_of(masses), apart(len(masses)), queries=(1, 2, 7, 50, 1000), probabilities=(p,)).curves
    for n, answer in zip(curve.queries, curve.rates, strict=True):
        count = sum(is_extractable(mass, n, p) for mass in masses)
        assert answer.value == pytest.approx(count / len(masses))
        if len(masses) > 1:
            assert answer.interval[:2] == pytest.approx(exact_interval(count, len(masses))[:2], rel=1e-9)


@given(mass_lists)
def test_rates_rise_with_queries_fall_with_certainty_and_stay_below_the_worst_case(masses: list[float]) -> None:
    answer = rate_curves(logs_of(masses), apart(len(masses)), queries=query_grid(1e6))
    table = np.array([[point.value for point in curve.rates] for curve in answer.curves])
    assert np.all(np.diff(table, axis=1) >= 0)
    assert np.all(np.diff(table, axis=0) <= 0)
    assert np.all(table <= answer.worst_case.value)
    assert answer.worst_case.value == sum(mass > 0 for mass in masses) / len(masses)
    assert answer.windows == len(masses)


@given(mass_lists)
def test_enough_queries_reach_the_worst_case(masses: list[float]) -> None:
    answer = rate_curves(logs_of(masses), apart(len(masses)), queries=(1e300,))
    assert all(curve.rates[0] == answer.worst_case for curve in answer.curves)


def test_masses_below_the_smallest_float_count_in_the_worst_case() -> None:
    answer = rate_curves([-5000.0, -math.inf], apart(2), queries=(1e300,))
    assert answer.worst_case.value == 0.5
    assert answer.curves[0].rates[0].value == 0.0


def test_intervals_come_from_documents_and_blocks_when_places_are_known() -> None:
    generator = np.random.default_rng(8)
    walk = np.convolve(generator.normal(size=1019), np.ones(20) / math.sqrt(20), mode="valid")
    logs = -np.abs(walk) * 8
    starts = np.arange(1000) * 20
    places = Places.of(["book"] * 1000, starts, window_chars=400)
    units = choose_units(places, np.argsort(np.argsort(logs)).astype(np.float64))
    clustered = rate_curves(logs, places, queries=(10, 100), probabilities=(0.5,)).curves[0]
    naive = rate_curves(logs, apart(1000), queries=(10, 100), probabilities=(0.5,)).curves[0]
    for one, other, n in zip(clustered.rates, naive.rates, (10, 100), strict=True):
        hits = 1 - (1 - np.exp(logs)) ** n >= 0.5
        assert one == rate_over_units(hits, units)
        assert one.method is RateMethod.BY_BLOCK
        assert one.interval.high - one.interval.low > 1.5 * (other.interval.high - other.interval.low)


@given(st.floats(1, 1e12), st.integers(1, 12))
def test_grid_is_whole_rising_and_ends_at_the_largest(largest: float, per_decade: int) -> None:
    grid = query_grid(largest, per_decade)
    assert grid[0] == 1
    assert grid[-1] == math.floor(largest)
    assert all(point == round(point) for point in grid)
    assert all(a < b for a, b in itertools.pairwise(grid))


def test_default_grid_has_every_power_of_ten() -> None:
    assert {1, 10, 100, 1e3, 1e4, 1e5, 1e6} <= set(query_grid(1e6))
