"""The risk of a work against simulated queries to random windows, and against sums over characters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.stats.risk import expected_characters, leak_probability, stretches

WINDOWS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.floats(0, 1)), min_size=1, max_size=8).map(
    lambda rows: [np.array(column) for column in zip(*[(a, a + b, m) for a, b, m in rows], strict=True)]
)


@given(WINDOWS, st.integers(0, 50))
def test_risk_equals_the_sum_over_characters_and_the_product_over_queries(
    windows: list[np.ndarray], queries: int
) -> None:
    starts, ends, masses = windows
    by_character = [
        1 - (1 - sum(m for a, b, m in zip(*windows, strict=True) if a <= c < b) / len(masses)) ** queries
        for c in range(40)
    ]
    text = stretches(starts, ends, masses)
    assert expected_characters(text, queries) == pytest.approx(sum(by_character), abs=1e-9)
    assert leak_probability(float(masses.mean()), queries) == pytest.approx(
        1 - (1 - masses.mean()) ** queries, abs=1e-12
    )
    assert text.covered == len({c for a, b in zip(starts, ends, strict=True) for c in range(a, b)})


@given(WINDOWS, st.integers(1, 50), st.integers(0, 7), st.floats(0, 1))
def test_more_mass_never_lowers_the_risk(windows: list[np.ndarray], queries: int, place: int, more: float) -> None:
    starts, ends, masses = windows
    raised = masses.copy()
    raised[place % len(masses)] = max(raised[place % len(masses)], more)
    assert leak_probability(float(raised.mean()), queries) >= leak_probability(float(masses.mean()), queries) - 1e-12
    after, before = (expected_characters(stretches(starts, ends, one), queries) for one in (raised, masses))
    assert after >= before - 1e-9


def test_tiny_masses_keep_their_digits() -> None:
    starts, ends, masses = np.array([0, 5]), np.array([10, 15]), np.array([1e-18, 1e-300])
    assert leak_probability(float(masses.mean()), 1000) == pytest.approx(5e-16)
    assert expected_characters(stretches(starts, ends, masses), 1000) == pytest.approx(10 * 5e-16)
    assert leak_probability(0.0, 1e6) == 0
    assert leak_probability(1.0, 1) == 1
