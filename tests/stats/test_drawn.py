"""Limits from a random draw: against plain enumeration, and at the worst moment to stop."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.limits import drawn_share


@given(st.integers(2, 40), st.data())
def test_limits_are_the_counts_whose_chance_is_not_too_small(population: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, population - 1))
    marked = data.draw(st.integers(0, drawn))
    alpha = data.draw(st.sampled_from([0.5, 0.05, 0.001]))
    average = math.factorial(marked) * math.factorial(drawn - marked) / math.factorial(drawn + 1)
    possible = [
        count
        for count in range(marked, population - (drawn - marked) + 1)
        if math.perm(count, marked) * math.perm(population - count, drawn - marked) / math.perm(population, drawn)
        >= alpha * average * (1 - 1e-9)
    ]
    found = drawn_share(marked, drawn, population, alpha=alpha)
    assert found.low * population == pytest.approx(min(possible))
    assert found.high * population == pytest.approx(max(possible))


@given(st.integers(1, 500), st.data())
def test_without_end_limits_are_those_of_a_very_large_set(drawn: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, drawn))
    endless, large = (drawn_share(marked, drawn, size, alpha=0.05) for size in (None, 10**7))
    assert endless.low == pytest.approx(large.low, abs=1e-4)
    assert endless.high == pytest.approx(large.high, abs=1e-4)
    assert endless.low <= marked / drawn <= endless.high


def test_what_was_drawn_whole_is_known() -> None:
    assert drawn_share(3, 10, 10, alpha=0.05)[:2] == (0.3, 0.3)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ConfigError, match="5 marked of 4 drawn"):
        drawn_share(5, 4, 10, alpha=0.05)


def test_limits_hold_however_the_moment_to_stop_is_chosen() -> None:
    """200 sets drawn to their end, looked at after every draw: in how many do the limits ever miss? More than 22 have a
    chance of 1 in 3,000, if they did so as often as allowed. Limits for one moment would miss in more than half."""
    generator = np.random.default_rng(5)
    misses = 0
    for _ in range(200):
        size, marked = 80, int(generator.integers(0, 81))
        order = generator.permutation(np.arange(size) < marked)
        found = [drawn_share(int(order[:n].sum()), n, size, alpha=0.05) for n in range(1, size)]
        misses += any(not one.low - 1e-12 <= marked / size <= one.high + 1e-12 for one in found)
    assert misses <= 22
