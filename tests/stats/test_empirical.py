"""Sampled hits against computed probabilities: exact tests by summation, calibrated under truth, alarmed by error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.scan.mc_report import binomial_p_values, check_sampling

cases = st.integers(1, 80).flatmap(
    lambda trials: st.tuples(st.floats(1e-6, 1 - 1e-6), st.integers(0, trials), st.just(trials))
)


@given(cases)
def test_window_p_value_equals_the_summed_binomial_tails(case: tuple[float, int, int]) -> None:
    p, hits, samples = case
    pmf = [math.comb(samples, k) * p**k * (1 - p) ** (samples - k) for k in range(samples + 1)]
    expected = min(1.0, 2 * min(math.fsum(pmf[hits:]), math.fsum(pmf[: hits + 1])))
    assert binomial_p_values(np.array([p]), np.array([hits]), np.array([samples]))[0] == pytest.approx(
        expected, rel=1e-8, abs=1e-300
    )


@given(cases)
def test_swapping_hits_and_misses_changes_nothing(case: tuple[float, int, int]) -> None:
    p, hits, samples = case
    one = binomial_p_values(np.array([p]), np.array([hits]), np.array([samples]))
    other = binomial_p_values(np.array([1 - p]), np.array([samples - hits]), np.array([samples]))
    assert one[0] == pytest.approx(other[0], rel=1e-6, abs=1e-300)


def test_certain_windows_are_either_right_or_impossible() -> None:
    p_values = binomial_p_values(
        np.array([0.0, 0.0, 1.0, 1.0, 0.5]), np.array([0, 1, 10, 9, 0]), np.array([10, 10, 10, 10, 0])
    )
    assert p_values[:4].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert math.isnan(p_values[4])


def test_tiny_probabilities_are_not_rounded_away() -> None:
    """One hit in 1,000 at p = 1e-200 has probability 1e-197, which is nearly but not exactly impossible."""
    p_value = binomial_p_values(np.array([1e-200]), np.array([1]), np.array([1000]))[0]
    assert p_value == pytest.approx(2e-197, rel=1e-6)


def test_right_probabilities_are_rejected_no_more_often_than_stated() -> None:
    """300 correct checks at significance 0.05 each: at most 0.1 are rejected in truth, so more than 55 of 300 (mean
    30, standard deviation 5.2) is a false alarm of less than 1e-5."""
    generator = np.random.default_rng(5)
    alarms = 0
    for trial in range(300):
        p = 10 ** generator.uniform(-4, 0, size=40)
        hits = generator.binomial(200, p)
        alarms += not check_sampling(p, hits, 200, seed=trial, simulations=99).agrees(0.05)
    assert alarms <= 55


def test_one_wrong_window_among_many_is_found() -> None:
    p = np.full(200, 0.01)
    hits = np.random.default_rng(6).binomial(500, p)
    hits[17] = 40
    check = check_sampling(p, hits, 500)
    assert int(np.nanargmin(check.adjusted)) == 17
    assert check.adjusted[17] < 1e-10
    assert not check.agrees()


def test_a_small_error_spread_over_many_windows_is_found_by_the_overall_test() -> None:
    """Hits at 1.3 times the computed probability: no window alone stands out, together they do. The statistic lies
    some 9 standard deviations out, so a miss is rarer than one in a million."""
    p = np.full(400, 0.1)
    hits = np.random.default_rng(7).binomial(100, 1.3 * p)
    check = check_sampling(p, hits, 100, simulations=400)
    assert check.overall_p_value == 1 / 401


def test_impossible_hits_alarm_even_when_nothing_else_can_vary() -> None:
    check = check_sampling([0.0, 1.0], [1, 5], 5)
    assert math.isnan(check.overall_p_value)
    assert check.reason is not None
    assert not check.agrees()
    assert check_sampling([0.0, 1.0], [0, 5], 5).agrees()


def test_nothing_sampled_is_nan_with_a_reason() -> None:
    check = check_sampling([0.1, 0.2], [0, 0], 0)
    assert np.isnan(check.adjusted).all()
    assert check.agrees()
    assert check.reason == "no window was sampled whose outcome could vary"


def test_same_seed_same_overall_p_value() -> None:
    p = np.random.default_rng(8).random(30)
    hits = np.random.default_rng(9).binomial(20, p)
    one, other = (check_sampling(p, hits, 20, seed=3).overall_p_value for _ in range(2))
    assert one == other
