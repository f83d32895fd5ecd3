"""Curves and areas against scikit-learn and by counting; thresholds from controls by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.stats.clusters import Places, document_units
from byrote.stats.roc import found_at, placements, roc_curve, rounded_up, separation, threshold_from_controls

SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12).map(np.array)


def units(count: int, *, each: int = 1):  # type: ignore[no-untyped-def]
    return document_units(Places.of([str(row // each) for row in range(count)], range(count), window_chars=1))


@given(SCORES, SCORES)
def test_curve_area_and_hits_equal_counting_over_every_threshold(positives: np.ndarray, negatives: np.ndarray) -> None:
    curve = roc_curve(positives, negatives)
    thresholds = [math.inf, *sorted({*positives, *negatives}, reverse=True)]
    assert curve.false_positives.tolist() == [float(np.mean(negatives >= one)) for one in thresholds]
    assert curve.true_positives.tolist() == [float(np.mean(positives >= one)) for one in thresholds]
    wins = [float(one > other) + float(one == other) / 2 for one in positives for other in negatives]
    assert placements(positives, negatives).mean() == pytest.approx(np.mean(wins))
    for rate in (0.001, 0.25, 0.5, 1.0):
        best = max(share for false, share in zip(*curve, strict=True) if false <= rate)
        assert found_at(positives, negatives, rate).mean() == best


@given(SCORES, SCORES)
def test_curve_and_area_equal_scikit_learn(positives: np.ndarray, negatives: np.ndarray) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the judge")
    labels = np.repeat([1, 0], [len(positives), len(negatives)])
    scores = np.concatenate([positives, negatives])
    false, true, _ = metrics.roc_curve(labels, scores, drop_intermediate=False)
    curve = roc_curve(positives, negatives)
    assert curve.false_positives == pytest.approx(false)
    assert curve.true_positives == pytest.approx(true)
    area = separation(positives, negatives, units(len(positives)), units(len(negatives)))
    assert area.auc == pytest.approx(metrics.roc_auc_score(labels, scores))
    for rate in (0.001, 0.01, 0.3):
        assert found_at(positives, negatives, rate).mean() == pytest.approx(true[false <= rate].max())


def test_the_interval_of_an_area_covers_the_truth_although_windows_of_a_document_agree() -> None:
    """Positives N(1, 1), negatives N(0, 1): the area is Φ(1/√2). Documents of 5 windows share their score.

    Coverage is 95 % nominally; 400 draws at 91 % or below would happen with probability < 0.001 if it were.
    """
    generator = np.random.default_rng(0)
    truth = 0.5 * math.erfc(-1 / 2)
    covered = 0
    for _ in range(400):
        positives = np.repeat(generator.normal(1, 1, 40), 5)
        negatives = np.repeat(generator.normal(0, 1, 50), 5)
        interval = separation(positives, negatives, units(200, each=5), units(250, each=5)).interval
        covered += interval.low <= truth <= interval.high
    assert covered / 400 > 0.91


def test_an_area_without_spread_has_no_interval_and_says_why() -> None:
    apart = separation(np.array([3.0, 4.0]), np.array([1.0, 2.0]), units(2), units(2))
    assert (apart.auc, apart.interval.is_defined) == (1.0, False)
    assert apart.interval.reason == "all units agree, so no spread can be seen"
    single = separation(np.array([3.0]), np.array([1.0, 2.0]), units(1), units(2))
    assert single.interval.reason == "one side is a single unit, so no spread can be seen"


@pytest.mark.parametrize("kind", ["continuous", "heavy ties", "mostly zero"])
@pytest.mark.parametrize(("controls", "rate"), [(99, 0.01), (40, 0.1)])
def test_a_threshold_from_controls_has_at_most_its_stated_rate_of_false_positives(
    kind: str, controls: int, rate: float
) -> None:
    """5,000 draws of controls and one more: a rate 4 standard errors above the stated one has probability < 1e-4."""
    generator = np.random.default_rng(controls)
    draws = generator.random((5_000, controls + 1))
    scores = {"continuous": draws, "heavy ties": np.round(draws, 1), "mostly zero": np.where(draws < 0.97, 0, draws)}
    reached = 0
    for row in scores[kind]:
        found = threshold_from_controls(row[:-1], rate)
        # Where all of 1 is taken by controls no threshold can be had, and nothing is claimed.
        reached += found.value is not None and row[-1] >= found.value
    share = reached / 5_000
    assert share <= rate + 4 * math.sqrt(rate / 5_000)
    if kind == "continuous":
        assert share >= 0.8 * rate - 4 * math.sqrt(rate / 5_000), "and does not throw evidence away"


def test_a_rate_that_so_few_controls_cannot_show_is_refused_with_the_number_it_takes() -> None:
    few = threshold_from_controls(np.zeros(998), 0.001)
    assert few.value is None
    assert few.reason == "a false-positive rate of 0.001 cannot be had from 998 controls; it takes 999 or more"
    assert threshold_from_controls(np.zeros(999), 0.001).value is not None


def test_controls_that_reach_certainty_leave_no_threshold() -> None:
    found = threshold_from_controls(np.ones(30), 0.1)
    assert found.value is None
    assert found.reason == "3 controls have a probability of 1"


@given(st.floats(5e-324, 1.0, exclude_max=True))
def test_rounding_up_gives_the_next_number_of_three_digits(value: float) -> None:
    above = rounded_up(value)
    assert value < above
    assert above == float(f"{above:.2e}")
    assert above <= value * 1.0101 + 2e-323
