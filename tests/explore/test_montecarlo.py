"""Plain Monte Carlo against enumeration: unbiased, covering, priced correctly; and the intervals it uses."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rote.errors import ConfigError
from rote.explore import montecarlo
from rote.explore.intervals import (
    beta_quantile,
    gamma_quantile,
    normal_quantile,
    rare_interval,
    share_interval,
    student_quantile,
)
from rote.explore.montecarlo import MonteCarloOptions, MonteCarloResult, sample_windows
from tests.explore.estimator_cases import LIMITS, Case, open_case, random_case


def options_of(case: Case, *, samples: int = 100, seed: int = 0) -> MonteCarloOptions:
    return MonteCarloOptions(
        policy=case.options.policy,
        distance=case.options.distance,
        edit_budget=case.options.edit_budget,
        samples=samples,
        replicates=1,
        seed=seed,
        interval="exact",
        stops_when_lost=True,
    )


def sampled(case: Case, options: MonteCarloOptions) -> MonteCarloResult:
    (result,) = sample_windows(case.model, [case.window], options, slots=1, limits=LIMITS)
    return result


def test_estimates_are_unbiased_against_enumeration() -> None:
    """The standardised sum over 40 windows of 500 samples, |z| ≤ 4.5: a false alarm once in 150,000 runs."""
    cases = [random_case(seed) for seed in range(40)]
    deviation = sum(sampled(case, options_of(case, samples=500)).estimate.value - case.truth for case in cases)
    variance = sum(case.truth * (1 - case.truth) / 500 for case in cases)
    assert variance > 0
    assert abs(deviation) <= 4.5 * math.sqrt(variance)


def test_exact_intervals_cover_the_truth() -> None:
    """500 random windows, 60 samples each. Coverage is at least 95 %, so 93 % fails by chance less than once in 40."""
    cases = [random_case(seed) for seed in range(500)]
    intervals = [sampled(case, options_of(case, samples=60)).estimate.interval for case in cases]
    covered = [i.low <= case.truth <= i.high for case, i in zip(cases, intervals, strict=True)]
    assert sum(case.truth < 1e-3 for case in cases) >= 30, "small masses must be among them"
    assert np.mean(covered) >= 0.93


def test_replicates_share_the_samples_and_average_to_the_estimate() -> None:
    case = open_case()
    result = sampled(case, replace(options_of(case, samples=403), replicates=4))
    assert len(result.replicates) == 4
    assert np.average(result.replicates, weights=[101, 101, 101, 100]) == pytest.approx(result.estimate.value)


def test_the_curve_ends_at_the_estimate_and_costs_grow_along_it() -> None:
    case = open_case()
    result = sampled(case, options_of(case, samples=120))
    assert [point.samples for point in result.curve] == [10, 20, 50, 100, 120]
    assert result.curve[-1] == result.estimate
    costs = [point.token_evals for point in result.curve]
    assert costs == sorted(costs)
    widths = [point.interval.high - point.interval.low for point in result.curve]
    assert widths[-1] < widths[0]


def test_following_lost_samples_costs_more_and_stays_unbiased() -> None:
    """One window, 2,000 samples each way; |z| ≤ 4.5: a false alarm once in 150,000 runs."""
    case = open_case()
    stopping, plain = (
        sampled(case, replace(options_of(case, samples=2000), stops_when_lost=stops)) for stops in (True, False)
    )
    assert plain.estimate.token_evals > stopping.estimate.token_evals
    spread = math.sqrt(case.truth * (1 - case.truth) / 2000)
    assert abs(plain.estimate.value - case.truth) <= 4.5 * spread


def test_results_depend_on_seed_and_window_alone() -> None:
    case = open_case()
    windows = [replace(case.window, window_id=f"copy {number}") for number in range(5)]
    options, model = options_of(case, samples=40), case.model
    forward = {r.window.window_id: r for r in sample_windows(model, windows, options, slots=2, limits=LIMITS)}
    backward = {r.window.window_id: r for r in sample_windows(model, windows[::-1], options, slots=5, limits=LIMITS)}
    assert forward == backward
    other = {
        r.window.window_id: r for r in sample_windows(model, windows, replace(options, seed=1), slots=2, limits=LIMITS)
    }
    assert forward != other


@pytest.mark.parametrize(("samples", "replicates"), [(0, 1), (10, 0), (10, 11)])
def test_impossible_sample_sizes_are_refused(samples: int, replicates: int) -> None:
    case = random_case(1)
    with pytest.raises(ConfigError, match="samples"):
        replace(options_of(case), samples=samples, replicates=replicates)


@pytest.mark.parametrize(("hits", "trials"), [(0, 1), (0, 50), (1, 50), (25, 50), (50, 50), (3, 100_000)])
def test_share_intervals_equal_scipy(hits: int, trials: int) -> None:
    test = stats.binomtest(hits, trials)
    for method in ("wilson", "exact"):
        expected = test.proportion_ci(0.95, method=method)
        low, high, _, _ = share_interval(hits, trials, method=method)
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-10)


@pytest.mark.parametrize("shape", [0.05, 1.0, 3.7, 200.0, 1e5, 1e8])
def test_quantiles_equal_scipy(shape: float) -> None:
    for probability in (0.025, 0.5, 0.975):
        assert gamma_quantile(probability, shape) == pytest.approx(stats.gamma.ppf(probability, shape), rel=1e-6)
    assert beta_quantile(0.3, min(shape, 1e3), 7.0) == pytest.approx(stats.beta.ppf(0.3, min(shape, 1e3), 7.0))
    assert student_quantile(0.95, 3) == pytest.approx(stats.t.ppf(0.975, 3))
    assert normal_quantile(0.95) == pytest.approx(1.959963984540054)


def test_the_interval_of_rare_hits_is_the_poisson_interval_when_weights_are_equal() -> None:
    low, high, _, _ = rare_interval(4 * 0.01, 4 * 0.01**2, heaviest=0.01)
    assert low == pytest.approx(0.01 * stats.chi2.ppf(0.025, 8) / 2)
    assert high == pytest.approx(0.01 * stats.chi2.ppf(0.975, 10) / 2)
    assert rare_interval(0.0, 0.0, heaviest=0.01).high == pytest.approx(0.03689, rel=1e-3)


def test_no_trials_give_no_interval_but_a_reason() -> None:
    interval = share_interval(0, 0)
    assert not interval.is_defined
    assert interval.reason == "no samples, so no share"
    with pytest.raises(ConfigError, match="impossible"):
        share_interval(3, 2)


@pytest.mark.parametrize("hits", [0, 10])
def test_a_sample_without_spread_has_no_standard_error_but_an_interval(hits: int) -> None:
    """A standard error of 0 would claim certainty that ten samples cannot give."""
    estimate = montecarlo._estimate(hits, 10, 500, "exact")
    assert math.isnan(estimate.standard_error)
    assert estimate.interval.high - estimate.interval.low > 0.2
