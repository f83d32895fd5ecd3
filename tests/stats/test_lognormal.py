"""Prediction of a heavy-tailed mean: covers the mean of a new sample as often as it says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.prior_mean import predicted_log_mean


@pytest.mark.parametrize(("size", "sigma"), [(4, 0.5), (18, 0.5), (18, 3.0), (18, 7.0), (60, 3.0)])
def test_it_covers_the_mean_of_as_many_new_values_at_each_end(size: int, sigma: float) -> None:
    # 500 predictions, each end to fail with 2.5 %: more than 30 failures (6 %) have a chance of 1e-5; seeded.
    rng = np.random.default_rng([size, int(10 * sigma)])
    too_low, too_high = 0, 0
    for _ in range(500):
        first, second = rng.normal(-4.0, sigma, (2, size))
        low, high, _, _ = predicted_log_mean(first.tolist())
        mean = float(np.log(np.exp(second).mean()))
        too_low += mean > high
        too_high += mean < low
    assert max(too_low, too_high) <= 30


def test_mean_plus_minus_errors_would_not_cover_where_few_values_carry_the_mean() -> None:
    """Why it is needed: the textbook interval covers the mean of a new sample about half as often as it says."""
    rng = np.random.default_rng(1)
    samples = np.exp(rng.normal(0.0, 3.0, (400, 2, 18)))
    means, errors = samples.mean(-1), samples.std(-1, ddof=1) / math.sqrt(18)
    covered = np.abs(means[:, 0] - means[:, 1]) <= 1.96 * errors[:, 0]
    assert covered.mean() < 0.75


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=20), st.floats(-30, 30))
def test_a_factor_on_all_values_is_a_factor_on_both_ends(logs: list[float], shift: float) -> None:
    here, there = predicted_log_mean(logs), predicted_log_mean([value + shift for value in logs])
    assert there.low == pytest.approx(here.low + shift, abs=1e-6)
    assert there.high == pytest.approx(here.high + shift, abs=1e-6)
    assert here.low <= here.high


def test_equal_values_predict_themselves_and_one_value_nothing() -> None:
    assert predicted_log_mean([2.0] * 5)[:2] == pytest.approx((2.0, 2.0))
    assert predicted_log_mean([2.0])[:2] == (-math.inf, math.inf)


def test_a_level_outside_its_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="outside"):
        predicted_log_mean([1.0, 2.0], level=1.0)
