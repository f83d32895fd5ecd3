"""Known figures, one by one, and the definitions behind the figures."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.planning import (
    beam_search_evals,
    greedy_evals,
    monte_carlo_evals,
    samples_to_detect,
    samples_to_estimate,
    scan_evals,
    teacher_forcing_evals,
)


def test_samples_to_hit_once() -> None:
    found = {mass: [samples_to_detect(mass, miss) for miss in (0.005, 0.05, 0.5)] for mass in (0.1, 0.01, 0.001)}
    assert found == {0.1: [51, 29, 7], 0.01: [528, 299, 69], 0.001: [5296, 2995, 693]}


def test_samples_for_a_tenth_of_relative_error() -> None:
    assert samples_to_estimate(0.001, 0.1) == 99_900


def test_token_evaluations() -> None:
    assert greedy_evals(50, 50) == 99
    assert teacher_forcing_evals(50, 50) == 100
    assert beam_search_evals(50, 50, beam_width=20) == 1_030
    assert scan_evals(50, 50, beams=0) == 99
    assert scan_evals(50, 50, beams=20) == 1_079
    assert monte_carlo_evals(50, 50, samples=3_000) == 147_050
    assert monte_carlo_evals(50, 50, samples=100_000) == 4_900_050


@given(st.floats(1e-4, 0.999), st.floats(1e-6, 0.999))
def test_detection_is_enough_and_one_fewer_is_not(mass: float, miss_chance: float) -> None:
    samples = samples_to_detect(mass, miss_chance)
    assert (1 - mass) ** samples <= miss_chance * (1 + 1e-9)
    assert (1 - mass) ** (samples - 1) > miss_chance * (1 - 1e-9)


@given(st.floats(1e-6, 0.999), st.floats(0.01, 1.0))
def test_estimation_reaches_the_error_and_one_fewer_does_not(mass: float, relative_error: float) -> None:
    samples = samples_to_estimate(mass, relative_error)

    def error(count: int) -> float:
        return math.sqrt((1 - mass) / (mass * count)) if count else math.inf

    assert error(samples) <= relative_error * (1 + 1e-9)
    assert error(samples - 1) > relative_error * (1 - 1e-9)


def test_edges() -> None:
    assert samples_to_detect(1.0, 0.01) == 1
    assert samples_to_estimate(1.0, 0.1) == 1
    assert monte_carlo_evals(50, 50, samples=0) == 50


@pytest.mark.parametrize("ask", [lambda: samples_to_estimate(1e-320, 0.001), lambda: samples_to_detect(1e-320, 0.05)])
def test_more_samples_than_any_float_are_refused(ask: Callable[[], int]) -> None:
    with pytest.raises(ConfigError, match="too small"):
        ask()
