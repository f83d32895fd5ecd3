"""Rate intervals against brute-force binomial sums and the equations that define them."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.intervals import exact_interval, wilson_interval
from byrote.types import Interval

counts = st.integers(1, 300).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))
levels = st.floats(0.5, 0.999)


def binomial_at_least(successes: int, trials: int, p: float) -> float:
    return math.fsum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1))


def binomial_at_most(successes: int, trials: int, p: float) -> float:
    return math.fsum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1))


@given(counts, levels)
def test_exact_ends_put_half_the_error_in_each_binomial_tail(count: tuple[int, int], level: float) -> None:
    successes, trials = count
    low, high, _, reason = exact_interval(successes, trials, level=level)
    tail = (1 - level) / 2
    assert reason is None
    assert (
        (low == 0.0) if successes == 0 else binomial_at_least(successes, trials, low) == pytest.approx(tail, rel=1e-6)
    )
    assert (
        (high == 1.0)
        if successes == trials
        else binomial_at_most(successes, trials, high) == pytest.approx(tail, rel=1e-6)
    )


@given(counts, levels)
def test_wilson_ends_are_where_the_score_test_just_rejects(count: tuple[int, int], level: float) -> None:
    from statistics import NormalDist

    successes, trials = count
    low, high, _, _ = wilson_interval(successes, trials, level=level)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / trials
    for end in (low, high):
        if 0.0 < end < 1.0:
            score = abs(share - end) / math.sqrt(end * (1 - end) / trials)
            assert score == pytest.approx(quantile, rel=1e-6, abs=1e-9)


both_kinds = pytest.mark.parametrize("make", [wilson_interval, exact_interval])
Make = Callable[..., Interval]


@both_kinds
@given(count=counts, level=levels)
def test_interval_contains_the_share_stays_in_the_unit_range_and_has_width(
    make: Make, count: tuple[int, int], level: float
) -> None:
    answer = make(*count, level=level)
    assert 0.0 <= answer.low <= count[0] / count[1] <= answer.high <= 1.0
    assert answer.high > answer.low


@both_kinds
@given(count=counts)
def test_swapping_hits_and_misses_mirrors_the_interval(make: Make, count: tuple[int, int]) -> None:
    successes, trials = count
    answer, mirrored = make(successes, trials), make(trials - successes, trials)
    assert answer.low == pytest.approx(1 - mirrored.high, abs=1e-12)
    assert answer.high == pytest.approx(1 - mirrored.low, abs=1e-12)


@both_kinds
@given(count=counts, one=levels, other=levels)
def test_more_confidence_never_narrows(make: Make, count: tuple[int, int], one: float, other: float) -> None:
    narrow, wide = (make(*count, level=level) for level in sorted((one, other)))
    assert wide.low <= narrow.low + 1e-12
    assert narrow.high <= wide.high + 1e-12


@pytest.mark.parametrize("p", [0.001, 0.02, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("trials", [5, 40, 200])
def test_coverage_summed_over_all_outcomes(p: float, trials: int) -> None:
    """No sampling, so no false alarm: exact never undercovers; Wilson stays above 0.83 at its known worst points."""
    pmf = np.array([math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)])
    for make, floor in ((exact_interval, 0.95), (wilson_interval, 0.83)):
        covers = [make(k, trials).low <= p <= make(k, trials).high for k in range(trials + 1)]
        assert float(pmf @ np.array(covers)) >= floor - 1e-12


@both_kinds
def test_no_windows_give_nan_and_the_reason(make: Make) -> None:
    answer = make(0, 0)
    assert not answer.is_defined
    assert answer.reason == "no windows, so no rate"


def test_published_values() -> None:
    """Wilson and Clopper–Pearson for 81 of 263 at 95 %, Newcombe's (1998) standard example."""
    assert wilson_interval(81, 263)[:2] == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert exact_interval(81, 263)[:2] == pytest.approx((0.2527, 0.3676), abs=5e-5)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan])
def test_impossible_levels_are_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="Confidence level"):
        exact_interval(1, 2, level=level)
