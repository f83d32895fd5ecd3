"""n ↔ p against exact rational arithmetic, at ordinary and extreme values."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.curves import probability_within, queries_needed, queries_needed_from_log

EXTREME = [1e-300, 1e-100, 1e-17, 1e-6, 0.3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12]
masses = st.floats(1e-300, 1 - 1e-12)
targets = st.floats(1e-12, 1 - 1e-12)


def needed_by_trying(p_z: float, p: float) -> int:
    """The slow, obvious version: query until the exact probability of a success reaches p."""
    with localcontext() as context:
        context.prec = 60
        miss, left, n = 1 - Decimal(p_z), Decimal(1), 0
        # Doubles near a whole answer: the same relative slack as the fast version documents.
        while 1 - left < Decimal(p) * (1 - Decimal("1e-13")):
            left *= miss
            n += 1
        return n


def real_queries_in_decimal(p_z: float, p: float) -> float:
    with localcontext() as context:
        context.prec = 400
        return float((1 - Decimal(p)).ln() / (1 - Decimal(p_z)).ln())


@given(st.floats(0.003, 1 - 1e-9), st.floats(0.001, 0.9999))
def test_whole_queries_equal_trying_one_more_until_it_is_enough(p_z: float, p: float) -> None:
    assert queries_needed(p_z, p) == needed_by_trying(p_z, p)


@pytest.mark.parametrize("p_z", EXTREME)
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.999, 1 - 1e-12])
def test_real_queries_equal_four_hundred_digit_arithmetic(p_z: float, p: float) -> None:
    truth = real_queries_in_decimal(p_z, p)
    assert queries_needed(p_z, p, whole=False) == pytest.approx(truth, rel=1e-13)


@pytest.mark.parametrize("p_z", EXTREME)
@pytest.mark.parametrize("p", [1e-300, 1e-12, 0.1, 0.5, 0.999, 1 - 1e-12])
def test_round_trip_at_extreme_values(p_z: float, p: float) -> None:
    log_p_z = math.log(p_z)
    n = queries_needed_from_log(log_p_z, p, whole=False)
    assert probability_within(log_p_z, n) == pytest.approx(p, rel=1e-12)
    assert 1 - probability_within(log_p_z, n) == pytest.approx(1 - p, rel=1e-3)


@given(masses, targets)
def test_round_trip_everywhere(p_z: float, p: float) -> None:
    n = queries_needed_from_log(math.log(p_z), p, whole=False)
    assert probability_within(math.log(p_z), n) == pytest.approx(p, rel=1e-11)


@given(masses, targets)
def test_whole_queries_are_enough_and_one_fewer_is_not(p_z: float, p: float) -> None:
    n = queries_needed(p_z, p)
    log_p_z = math.log(p_z)
    assert probability_within(log_p_z, n) >= p * (1 - 1e-11)
    if n < 2**52 and p_z < 0.999:
        assert probability_within(log_p_z, n - 1) < p * (1 + 1e-11)


@given(masses, masses, targets)
def test_more_mass_never_needs_more_queries(one: float, other: float, p: float) -> None:
    assert queries_needed(max(one, other), p) <= queries_needed(min(one, other), p)


@given(masses, targets, targets)
def test_more_certainty_never_needs_fewer_queries(p_z: float, one: float, other: float) -> None:
    assert queries_needed(p_z, max(one, other)) >= queries_needed(p_z, min(one, other))


def test_edges() -> None:
    assert queries_needed(0.0, 0.5) == math.inf
    assert queries_needed(1.0, 0.5) == 1
    assert queries_needed(1.0, 1.0) == 1
    assert queries_needed(0.3, 1.0) == math.inf
    assert queries_needed(0.3, 0.0) == 0
    assert queries_needed_from_log(-math.inf, 0.5) == math.inf
    assert queries_needed_from_log(0.0, 0.999) == 1
    assert queries_needed_from_log(-5000.0, 0.5) == math.inf
    assert probability_within(-math.inf, math.inf) == 0.0
    assert probability_within(-1.0, math.inf) == 1.0
    assert probability_within(0.0, 0.0) == 0.0
    assert probability_within(0.0, 1.0) == 1.0


def test_answers_that_are_whole_in_exact_arithmetic_are_not_rounded_up() -> None:
    assert queries_needed(0.9, 0.999) == 3
    assert queries_needed(0.5, 0.75) == 2
    assert queries_needed(0.1, 0.1) == 1
    assert queries_needed(0.2, 1 - 0.8**7) == 7


@given(st.lists(st.floats(0, 1), max_size=20), targets)
def test_arrays_give_what_one_by_one_gives(values: list[float], p: float) -> None:
    array = np.array(values, dtype=np.float64)
    assert queries_needed(array, p).tolist() == [queries_needed(value, p) for value in values]
    with np.errstate(divide="ignore"):
        logs = np.log(array)
    assert probability_within(logs, 7.0).tolist() == [probability_within(float(value), 7.0) for value in logs]


def test_a_mass_summed_to_slightly_more_than_one_counts_as_one() -> None:
    assert queries_needed_from_log(1e-12, 0.9) == 1


def test_impossible_probabilities_are_refused_with_the_value() -> None:
    with pytest.raises(ConfigError, match=r"1\.5"):
        queries_needed(0.5, 1.5)
