"""Findings keep what is certified apart from what is sampled."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.errors import ConfigError
from rote.stats.verdicts import Finding, SampledSide, find
from rote.types import Bounds, Estimate, Interval, Verdict

shares = st.floats(0, 1)


def sampled(value: float, low: float, high: float, *, level: float = 0.95) -> Estimate:
    return Estimate(value, 0.0, Interval(low, high, level), high, 1000, 5000, hits=1, sampled_mass=1.0, base_mass=0.0)


findings = st.builds(
    lambda bounds, threshold, ends: (sorted(bounds), threshold, sorted(ends)),
    st.tuples(shares, shares),
    st.floats(1e-6, 1),
    st.tuples(shares, shares),
)


@given(findings)
def test_sampling_never_changes_the_verdict_or_the_bounds(case: tuple[list[float], float, list[float]]) -> None:
    (lower, upper), threshold, (low, high) = case
    bounds = Bounds((0.0, lower), (upper, upper))
    without = find(bounds, threshold)
    with_sample = find(bounds, threshold, estimate=sampled((low + high) / 2, low, high))
    assert with_sample.verdict is without.verdict is bounds.verdict(threshold)
    assert (with_sample.lower, with_sample.upper) == (lower, upper)
    assert without.sampled_side is SampledSide.ABSENT
    assert without.confidence is None
    assert with_sample.sentence().startswith(without.sentence())


@given(findings)
def test_sampled_side_says_where_the_whole_interval_lies(case: tuple[list[float], float, list[float]]) -> None:
    (lower, upper), threshold, (low, high) = case
    finding = find(Bounds((lower,), (upper,)), threshold, estimate=sampled((low + high) / 2, low, high))
    assert (finding.sampled_side is SampledSide.ABOVE) == (low >= threshold)
    assert (finding.sampled_side is SampledSide.BELOW) == (high < threshold)
    assert finding.is_consistent == (max(low, lower) <= min(high, upper))
    assert ("trust the bounds" in finding.sentence()) == (not finding.is_consistent)


def test_sentences_name_the_certified_part_first_and_the_confidence_of_the_rest() -> None:
    undecided = find(Bounds((0.0004,), (0.02,)), 0.001, estimate=sampled(0.0031, 0.0022, 0.0040))
    assert undecided.verdict is Verdict.NOT_SHOWN
    assert undecided.confidence == 0.95
    assert undecided.sentence() == (
        "Certified: not shown, as the mass lies between 0.0004 and 0.02, which leaves the threshold 0.001 undecided. "
        "Sampled: about 0.0031, 95 % interval 0.0022 to 0.004 (1,000 samples), all at or above the threshold."
    )
    assert find(Bounds((0.2,), (0.3,)), 0.001).sentence() == (
        "Certified: extractable, as the mass is at least 0.2 and the threshold 0.001 is reached."
    )
    assert find(Bounds((0.0,), (1e-6,)), 0.001).sentence() == (
        "Certified: ruled out, as the mass is at most 1e-06, below the threshold 0.001."
    )


def test_an_undefined_interval_is_absent_and_gives_its_reason() -> None:
    nothing = Interval(math.nan, math.nan, 0.95, "no samples")
    estimate = Estimate(math.nan, math.nan, nothing, math.nan, 0, 0, hits=0, sampled_mass=1.0, base_mass=0.0)
    finding = find(Bounds((0.0,), (0.5,)), 0.001, estimate=estimate)
    assert finding.sampled_side is SampledSide.ABSENT
    assert finding.confidence is None
    assert "no interval from 0 samples (no samples)" in finding.sentence()


def test_findings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Finding(0.0, 1.0, 0.001).lower = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5, math.nan])
def test_impossible_thresholds_are_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match="Threshold"):
        find(Bounds((0.1,), (0.2,)), threshold)


def test_crossed_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not bracket"):
        find(Bounds((0.3,), (0.2,)), 0.001)
