"""The audit of a screen: exact limits and unbiased expectations, whatever the densities and the rule of drawing."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.stats.limits import Stratum, at_most_found, expected_missed, missed_at_most, most_in_population


def textbook_tail(windows: int, marked: int, audited: int, found: int) -> Fraction:
    """By listing every sample."""
    samples = list(itertools.combinations(range(windows), audited))
    return Fraction(sum(sum(place < marked for place in sample) <= found for sample in samples), len(samples))


@given(st.data())
def test_the_tail_is_that_of_all_samples(data: st.DataObject) -> None:
    windows = data.draw(st.integers(1, 9))
    marked, audited = data.draw(st.integers(0, windows)), data.draw(st.integers(0, windows))
    found = data.draw(st.integers(0, audited))
    expected = float(textbook_tail(windows, marked, audited, found))
    assert at_most_found(windows, marked, audited, found) == pytest.approx(expected, abs=1e-12)


@given(st.data())
def test_the_limit_is_the_largest_number_that_is_not_refuted(data: st.DataObject) -> None:
    windows = data.draw(st.integers(1, 60))
    audited = data.draw(st.integers(0, windows))
    found = data.draw(st.integers(0, audited))
    possible = range(found, windows - audited + found + 1)
    kept = [marked for marked in possible if at_most_found(windows, marked, audited, found) > 0.05 - 1e-10]
    assert most_in_population(windows, audited, found, level=0.95) == max(kept)


def test_an_audit_of_600_among_very_many_bounds_the_share_by_half_a_percent() -> None:
    """The rule of three: nothing in 600 leaves 3/600."""
    assert missed_at_most([Stratum(13_000, 600, 0, 600 / 13_000)]) == pytest.approx(0.005 * 12_400, rel=0.03)


@pytest.mark.parametrize(
    ("strata", "limit"),
    [
        ([], 0),
        ([Stratum(40, 40, 3, 1.0)], 0),
        ([Stratum(10, 0, 0, 0.0)], 10),
        ([Stratum(40, 40, 3, 1.0), Stratum(10, 0, 0, 0.0)], 10),
        ([Stratum(2, 1, 1, 0.5)], 1),
    ],
)
def test_the_limit_counts_windows_that_were_left_out_and_no_others(strata: list[Stratum], limit: int) -> None:
    assert missed_at_most(strata) == limit


@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.integers(0, 500), st.integers(0, 20)).map(
            lambda drawn: Stratum(drawn[0], min(drawn[:2]), min(drawn), 0.5)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_while_windows_are_left_out_the_limit_is_above_0_and_within_them(strata: list[Stratum]) -> None:
    left_out = sum(stratum.left_out for stratum in strata)
    assert (1 if left_out else 0) <= missed_at_most(strata) <= left_out


def test_the_expectation_weighs_what_was_found_by_how_rarely_it_is_drawn() -> None:
    strata = [Stratum(100, 20, 2, 0.2), Stratum(1000, 50, 1, 0.05)]
    assert expected_missed(strata) == pytest.approx(2 * 4 + 1 * 19)
    assert expected_missed([Stratum(100, 20, 0, 0.2)]) == 0
    assert math.isnan(expected_missed([Stratum(10, 0, 0, 0.0)]))


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 found in 2 audited"):
        most_in_population(10, 2, 3, level=0.95)


RUNS = 400


@pytest.mark.parametrize(("share", "least"), [(0.04, 0), (0.0, 60), (0.03, 60)])
@pytest.mark.parametrize("missed", [(0, 40), (25, 0), (8, 20), (1, 1)])
def test_planted_misses_are_covered_and_estimated_without_bias(
    share: float, least: int, missed: tuple[int, int]
) -> None:
    """Draws as the screen draws: key = uniform / density, below `share` or among the `least` smallest.

    True coverage is at least 95 %: of 400 runs fewer than 352 (88 %) cover with a chance below 1e-7 each. The mean
    is off by more than 6 standard errors with a chance below 1e-6 (near-normal: 400 runs, bounded weights).
    """
    generator = np.random.default_rng([7, least, *missed])
    sizes, densities = (200, 1200), (4.0, 1.0)
    density = np.repeat(densities, sizes)
    is_missed = np.concatenate([np.arange(size) < count for size, count in zip(sizes, missed, strict=True)])
    covered, errors = 0, []
    for _ in range(RUNS):
        keys = generator.random(sum(sizes)) / density
        threshold = max(share, np.sort(keys)[least])
        is_drawn = keys < threshold
        strata = [
            Stratum(
                size,
                int(is_drawn[density == each].sum()),
                int((is_drawn & is_missed)[density == each].sum()),
                min(1.0, each * threshold),
            )
            for size, each in zip(sizes, densities, strict=True)
        ]
        truth = int((is_missed & ~is_drawn).sum())
        covered += truth <= missed_at_most(strata)
        errors.append(expected_missed(strata) - truth)
    assert covered >= 0.88 * RUNS
    assert abs(np.mean(errors)) < 6 * np.std(errors) / math.sqrt(RUNS)
