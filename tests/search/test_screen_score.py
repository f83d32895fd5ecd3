"""The screen's table against adding up all outcomes of independent trials."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.search.screen_score import FLOOR, log_score_table, screen_scores
from tests.oracle import poisson_binomial_tail

probabilities = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-9, 0.5, 1.0])), min_size=1, max_size=7)


@settings(max_examples=60)
@given(probabilities, st.integers(0, 4))
def test_table_holds_the_tail_of_every_remaining_stretch_at_twice_the_budget(probs: list[float], budget: int) -> None:
    table = log_score_table(probs, budget)
    assert table.shape == (len(probs) + 1, budget + 1)
    floored = [max(p, FLOOR) for p in probs]
    for step in range(len(probs) + 1):
        for edits in range(budget + 1):
            expected = poisson_binomial_tail(floored[step:], 2 * edits)
            assert math.exp(table[step, edits]) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert screen_scores([probs], [budget])[0] == pytest.approx(poisson_binomial_tail(floored, 2 * budget), rel=1e-9)


@given(probabilities, st.integers(0, 4))
def test_more_budget_and_less_left_to_do_never_lower_the_chance(probs: list[float], budget: int) -> None:
    table = log_score_table(probs, budget)
    assert (table <= 0).all()
    assert (table[:, 1:] >= table[:, :-1] - 1e-9).all()
    assert (table[1:] >= table[:-1] - 1e-9).all()
    assert (table[-1] == 0).all()


def test_memorized_and_ordinary_text_are_far_apart() -> None:
    """Fifty tokens at 0.9 pass; fifty at 1e-3 do not, at any floor a scan would use."""
    assert screen_scores([[0.9] * 50], [5])[0] > 0.9
    assert screen_scores([[1e-3] * 50], [5])[0] < 1e-60


def test_impossible_tokens_are_floored_not_fatal() -> None:
    assert screen_scores([[0.0] * 3 + [0.95] * 47], [5])[0] > 0.5
    assert math.isfinite(log_score_table([0.0] * 50, 5)[0, 0])
