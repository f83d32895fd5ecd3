"""Recovery: what the search finds of the exact text by itself, against what teacher forcing knows is there."""

import math

import numpy as np
import pytest

from byrote.stats.population import recovery


def test_lost_targets_count_against_the_search_and_rounding_does_not() -> None:
    found = recovery(np.array([0.5, 0.0, 0.0202, 0.3]), np.array([0.5, 0.4, 0.02, 0.3]), 0.001)
    assert (found.windows, found.found, found.share) == (4, 3, 0.75)
    assert found.median == pytest.approx(1.0)
    assert found.largest_difference == pytest.approx(0.01)


def test_windows_below_the_threshold_or_not_searched_are_left_out() -> None:
    found = recovery(np.array([math.nan, 0.0, 0.2]), np.array([0.9, 0.0009, 0.2]), 0.001)
    assert (found.windows, found.found) == (1, 1)


def test_without_windows_the_ratios_are_undefined() -> None:
    nothing = recovery(np.array([math.nan]), np.array([0.9]), 0.001)
    assert nothing.windows == 0
    assert math.isnan(nothing.median)
    assert math.isnan(nothing.share)
    lost = recovery(np.array([0.0]), np.array([0.9]), 0.001)
    assert lost.median == 0
    assert math.isnan(lost.largest_difference)
