"""The estimate of P(s): unbiased, convergent, within its variance bound, its interval covering the truth."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.models.shared_prefix import SharedPrefixScorer
from byrote.policy import Policy
from byrote.prior.verdicts import (
    largest_shown_ratio,
    log_interval,
    lower_limit,
    prefixes_to_show,
    ratio_interval,
    sound_log_interval,
    upper_limit,
)
from byrote.stats.intervals import exact_interval
from byrote.stats.prior_mean import PriorEstimate, PriorSums, log_mean, log_ratio
from byrote.types import Interval
from tests.oracle import every_continuation
from tests.table import TableModel

PLAIN = Policy(temperature=1.0, top_k=None)
VOCABULARY = 5
POPULATION = [list(prefix) for prefix in itertools.product(range(VOCABULARY), repeat=3)]
"""Every prefix of three tokens: the whole reference distribution, uniform."""
SUFFIXES = [[0, 1], [2, 2], [4, 3]]


def enumerated_prior(model: TableModel, suffix: list[int]) -> float:
    """P(s) by the law of total probability over the whole population, continuation by continuation."""

    def chance(prefix: list[int]) -> float:
        paths = every_continuation(model, prefix, len(suffix), PLAIN)
        return next(path.probability for path in paths if path.token_ids == tuple(suffix))

    return math.fsum(chance(prefix) for prefix in POPULATION) / len(POPULATION)


def drawn(log_p: np.ndarray, draws: int, rng: np.random.Generator, trials: int = 1) -> PriorSums:
    counts = np.stack([np.bincount(rng.integers(0, len(log_p), draws), minlength=len(log_p)) for _ in range(trials)], 1)
    return PriorSums.of(log_p, counts)


@pytest.fixture(scope="module")
def model() -> TableModel:
    return TableModel.random(5, vocab_size=VOCABULARY, spread=1.5)


@pytest.fixture(scope="module")
def log_p(model: TableModel) -> np.ndarray:
    return SharedPrefixScorer(model, SUFFIXES).score(POPULATION).numpy()


@pytest.fixture(scope="module")
def truth(model: TableModel) -> list[float]:
    return [enumerated_prior(model, suffix) for suffix in SUFFIXES]


def test_every_prefix_once_gives_the_enumerated_prior(log_p: np.ndarray, truth: list[float]) -> None:
    sums = PriorSums.of(log_p, np.ones((len(POPULATION), 1), dtype=np.int64))
    assert [math.exp(e.log_mean) for e in sums.estimates()] == pytest.approx(truth, rel=1e-5)


def test_estimate_converges_to_the_enumerated_prior(log_p: np.ndarray, truth: list[float]) -> None:
    # 5 standard errors: a false alarm has a chance below 6e-7 a suffix, and the seed is fixed.
    rng = np.random.default_rng(0)
    errors = []
    for draws in (100, 10_000, 1_000_000):
        for estimate, expected in zip(drawn(log_p, draws, rng).estimates(), truth, strict=True):
            assert abs(math.exp(estimate.log_mean) - expected) < 5 * estimate.standard_error
        errors.append(max(e.relative_error for e in drawn(log_p, draws, rng).estimates()))
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.4)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.1)


def test_interval_covers_the_enumerated_prior_about_as_often_as_it_says(log_p: np.ndarray, truth: list[float]) -> None:
    # 1,200 intervals at level 0.95 and true coverage 0.95 cover fewer than 0.93 with a chance below 0.001.
    rng = np.random.default_rng(1)
    covered, intervals = 0, 0
    for _ in range(400):
        for estimate, expected in zip(drawn(log_p, 1000, rng).estimates(), truth, strict=True):
            low, high = log_interval(estimate)[:2]
            covered += low <= math.log(expected) <= high
            intervals += 1
    assert 0.93 < covered / intervals < 0.985


def test_variance_of_the_estimator_stays_below_one_over_4c(log_p: np.ndarray) -> None:
    # The bound is 4 to 10 times the true variance here; 2,000 repetitions pin a variance to 3 %: no false alarm.
    rng = np.random.default_rng(2)
    for draws in (2, 25):
        values = np.array([[math.exp(e.log_mean) for e in drawn(log_p, draws, rng).estimates()] for _ in range(2000)])
        assert (values.var(axis=0) <= 1 / (4 * draws)).all()
        reported = np.mean(
            [[e.standard_error**2 for e in drawn(log_p, draws, rng).estimates()] for _ in range(2000)], 0
        )
        assert reported == pytest.approx(values.var(axis=0), rel=0.25)


LOG_PROBABILITIES = st.one_of(st.just(-math.inf), st.floats(-400, 0))


@given(st.lists(st.tuples(LOG_PROBABILITIES, st.integers(1, 3)), min_size=2, max_size=20))
def test_plug_in_variance_is_at_most_one_over_4c_for_any_probabilities(rows: list[tuple[float, int]]) -> None:
    values = np.array([[log_p] for log_p, _ in rows])
    counts = np.array([[count] for _, count in rows])
    (estimate,) = PriorSums.of(values, counts).estimates()
    c = int(counts.sum())
    if estimate.log_mean == -math.inf:
        assert math.isnan(estimate.relative_error)
        return
    plug_in = estimate.standard_error**2 * (c - 1) / c
    assert plug_in <= 1 / (4 * c) * (1 + 1e-9)
    assert 1 <= estimate.effective_prefixes <= c
    assert 0 < estimate.largest_share <= 1 + 1e-9


@given(
    st.lists(st.lists(LOG_PROBABILITIES, min_size=2, max_size=2), min_size=2, max_size=12),
    st.integers(1, 11),
    st.integers(0, 100),
)
def test_sums_do_not_depend_on_how_prefixes_are_grouped(rows: list[list[float]], cut: int, seed: int) -> None:
    values = np.array(rows)
    counts = np.random.default_rng(seed).integers(0, 3, (len(rows), 2))
    counts[0] = 1
    whole = PriorSums.of(values, counts).estimates()
    cut = min(cut, len(rows) - 1)
    parts = PriorSums.of(values[:cut], counts[:cut]).add(PriorSums.of(values[cut:], counts[cut:])).estimates()
    for one, other in zip(whole, parts, strict=True):
        assert one.log_mean == pytest.approx(other.log_mean, abs=1e-9)
        assert one.relative_error == pytest.approx(other.relative_error, abs=1e-6, nan_ok=True)
        assert one.trial_log_means == pytest.approx(other.trial_log_means, abs=1e-9)


@given(st.lists(st.floats(-30, 0), min_size=2, max_size=15), st.integers(0, 100))
def test_estimate_equals_plain_arithmetic(log_probabilities: list[float], seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 4, len(log_probabilities))
    counts[:2] = 1
    sample = np.repeat(np.exp(log_probabilities), counts)
    (estimate,) = PriorSums.of(np.array(log_probabilities)[:, None], counts[:, None]).estimates()
    assert math.exp(estimate.log_mean) == pytest.approx(sample.mean(), rel=1e-9)
    expected_error = sample.std(ddof=1) / math.sqrt(len(sample))
    assert estimate.standard_error == pytest.approx(expected_error, rel=1e-6, abs=1e-7 * sample.mean())
    assert estimate.effective_prefixes == pytest.approx(sample.sum() ** 2 / (sample**2).sum(), rel=1e-9)


def test_an_estimate_carried_by_one_prefix_says_so_and_has_no_sampled_interval() -> None:
    values = np.array([[-1.0], *[[-40.0]] * 999])
    (estimate,) = PriorSums.of(values, np.ones((1000, 1), dtype=np.int64)).estimates()
    assert estimate.effective_prefixes == pytest.approx(1)
    assert estimate.largest_share == pytest.approx(1)
    interval = log_interval(estimate)
    assert math.isnan(interval.low)
    assert interval.reason is not None
    assert "1.0 effective prefixes" in interval.reason
    assert sound_log_interval(estimate).is_defined


def test_a_suffix_no_prefix_allows_has_an_undefined_interval_with_the_reason_and_a_sound_floor() -> None:
    (estimate,) = PriorSums.of(np.full((1000, 1), -np.inf), np.ones((1000, 1), dtype=np.int64)).estimates()
    assert estimate.log_mean == -math.inf
    assert "no sampled prefix" in (log_interval(estimate).reason or "")
    assert log_ratio(-2.0, estimate.log_mean) == math.inf
    # Never seen in 1,000 draws: P(s) ≤ 1 − 0.025^(1/1000).
    low, high, _, _ = sound_log_interval(estimate)
    assert low == -math.inf
    assert math.exp(high) == pytest.approx(1 - 0.025 ** (1 / 1000), rel=1e-6)
    assert ratio_interval(-2.0, sound_log_interval(estimate)).high == math.inf


def test_ratio_intervals_are_those_of_the_prior_turned_round() -> None:
    assert ratio_interval(-1.0, Interval(-5.0, -3.0)) == Interval(2.0, 4.0)
    assert "impossible" in (ratio_interval(-math.inf, Interval(-5.0, -3.0)).reason or "")
    assert ratio_interval(-1.0, Interval(math.nan, math.nan, 0.95, "why")).reason == "why"


@pytest.mark.parametrize("sigma", [0.5, 3.0, 6.0])
def test_sound_interval_covers_also_where_a_few_prefixes_carry_everything(sigma: float) -> None:
    # The level is a guarantee: 400 intervals at 0.95 that miss more than 40 have a chance below 1e-5; seeded.
    rng = np.random.default_rng(4)
    centre = -3.0 - sigma**2
    population = np.minimum(rng.normal(centre, sigma, 20_000), 0.0)
    truth = log_mean(population.tolist())
    log_p = rng.choice(population, (300, 400))
    estimates = PriorSums.of(log_p, np.ones((300, 1), dtype=np.int64)).estimates()
    intervals = [sound_log_interval(estimate) for estimate in estimates]
    assert sum(low <= truth <= high for low, high, _, _ in intervals) >= 360
    assert all(low < estimate.log_mean < high for (low, high, _, _), estimate in zip(intervals, estimates, strict=True))


def test_suffixes_of_many_tokens_do_not_underflow() -> None:
    (estimate,) = PriorSums.of(np.full((8, 1), -2000.0), np.ones((8, 1), dtype=np.int64)).estimates()
    assert estimate.log_mean == pytest.approx(-2000.0)
    assert estimate.relative_error == 0.0
    assert log_mean([-2000.0, -2000.0]) == pytest.approx(-2000.0)


def test_overlapping_prefixes_count_as_often_as_they_stand_side_by_side() -> None:
    """400 prefixes in 40 stretches that are all the same have the limits of 40 different ones."""
    values = np.random.default_rng(0).normal(-3.0, 1.0, (40, 1))
    once = PriorSums.of(values, np.ones((40, 1), dtype=np.int64)).estimates()[0]
    tenfold = PriorSums.of(values, np.full((40, 1), 10)).estimates(independent=40)[0]
    assert sound_log_interval(tenfold)[:2] == pytest.approx(sound_log_interval(once)[:2])
    assert tenfold.relative_error == pytest.approx(once.relative_error)
    assert tenfold.effective_prefixes == pytest.approx(once.effective_prefixes)


def test_a_known_prior_leaves_no_error() -> None:
    sums = PriorSums.of(np.full((200, 1), -3.0), np.ones((200, 1), dtype=np.int64))
    (estimate,) = sums.estimates(independent=math.inf)
    assert estimate.relative_error == 0.0
    assert log_interval(estimate)[:2] == (estimate.log_mean, estimate.log_mean)
    assert sound_log_interval(estimate)[:2] == pytest.approx((estimate.log_mean, estimate.log_mean))


def bernoulli(hits: int, draws: int) -> PriorEstimate:
    """`hits` prefixes that make the suffix certain, among prefixes that forbid it."""
    log_p = np.array([[0.0], [-np.inf]])
    (estimate,) = PriorSums.of(log_p, np.array([[hits], [draws - hits]])).estimates()
    return estimate


@pytest.mark.parametrize(("hits", "draws"), [(0, 50), (1, 50), (7, 50), (49, 50), (50, 50), (300, 10_000)])
def test_sound_limits_enclose_the_exact_ones_of_coin_tosses(hits: int, draws: int) -> None:
    """Clopper and Pearson's limits are exact for probabilities of 0 and 1, the hardest case of [0, 1]."""
    estimate, tail = bernoulli(hits, draws), 0.025
    exact = exact_interval(hits, draws, level=1 - 2 * tail)
    assert math.exp(upper_limit(estimate, tail)) >= exact.high - 1e-12
    assert math.exp(lower_limit(estimate, tail)) <= exact.low + 1e-12


def test_many_hits_bring_the_lower_limit_close_to_the_estimate() -> None:
    low = lower_limit(bernoulli(300, 10_000), 0.025)
    assert math.exp(low) > 0.8 * 0.03


@given(st.floats(-2000, 0), st.integers(2, 10**6), st.floats(0.001, 0.4))
def test_sound_limits_are_ordered_and_never_tighter_for_a_smaller_chance_of_error(
    log_mean: float, draws: int, tail: float
) -> None:
    estimate = PriorEstimate(log_mean, 0.1, 2.0, 0.5, draws, (log_mean,), draws)
    low, high = lower_limit(estimate, tail), upper_limit(estimate, tail)
    assert low <= log_mean + 1e-9
    assert min(log_mean, 0.0) <= high + 1e-9 <= 1e-9
    assert lower_limit(estimate, tail / 2) <= low + 1e-9
    assert upper_limit(estimate, tail / 2) >= high - 1e-9


@given(st.floats(-8, -0.01), st.floats(0, 10))
def test_prefixes_to_show_a_ratio_are_those_from_which_it_can_be_shown(own: float, ratio: float) -> None:
    needed = prefixes_to_show(own, ratio, 0.025)
    assert largest_shown_ratio(own, math.ceil(needed), 0.025) >= ratio - 1e-9
    if needed > 2:
        assert largest_shown_ratio(own, math.ceil(needed) - 1, 0.025) < ratio + 1e-9


def test_no_number_of_prefixes_shows_an_unbounded_ratio() -> None:
    assert prefixes_to_show(-1.0, math.inf, 0.025) == math.inf
    assert prefixes_to_show(-1.0, -3.0, 0.025) == 1.0
