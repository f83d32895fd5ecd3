"""Values shared by all rooms: derived properties only."""

import math
from dataclasses import FrozenInstanceError

import pytest

from byrote.types import Interval, Split, Window
from byrote.verdict import Bounds, Verdict


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        ((0.0, 0.1), (0.0, 0.5), Verdict.EXTRACTABLE),
        ((0.0, 0.2), (0.0, 0.2), Verdict.EXTRACTABLE),
        ((0.0, 0.05), (0.0, 0.1), Verdict.NOT_SHOWN),
        ((0.0, 0.05), (0.0, 0.09), Verdict.RULED_OUT),
    ],
)
def test_verdict_compares_the_widest_bounds_with_the_threshold(
    lower: tuple[float, ...], upper: tuple[float, ...], verdict: Verdict
) -> None:
    assert Bounds(lower, upper).verdict(0.1) == verdict


def test_a_window_is_its_prefix_followed_by_its_suffix_and_cannot_change() -> None:
    window = Window("w", "d", Split.TARGET, 0, 3, 6, (1, 2), (3,))
    assert window.ids == (1, 2, 3)
    with pytest.raises(FrozenInstanceError):
        window.window_id = "other"  # type: ignore[misc]


def test_an_interval_with_a_nan_end_is_undefined() -> None:
    assert Interval(0.1, 0.2).is_defined
    assert not Interval(math.nan, math.nan, reason="no windows").is_defined
