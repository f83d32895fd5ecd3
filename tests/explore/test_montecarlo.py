"""Plain Monte Carlo against enumeration: unbiased, covering, priced correctly; and limits that need no spread."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from byrote.errors import ConfigError
from byrote.explore.monte_carlo import MonteCarloOptions, MonteCarloResult, sample_windows
from byrote.explore.residual import lower_limit, upper_limit
from tests.explore.estimator_cases import LIMITS, Case, open_case, random_case


def options_of(case: Case, *, samples: int = 100, seed: int = 0) -> MonteCarloOptions:
    return MonteCarloOptions(
        policy=case.options.policy,
        distance=case.options.distance,
        edit_budget=case.options.edit_budget,
        samples=samples,
        replicates=1,
        seed=seed,
        stops_when_lost=True,
    )


def sampled(case: Case, options: MonteCarloOptions) -> MonteCarloResult:
    (result,) = sample_windows(case.model, [case.window], options, slots=1, limits=LIMITS)
    return result


def test_estimates_are_unbiased_against_enumeration() -> None:
    """The standardised sum over 40 windows of 500 samples, |z| ≤ 4.5: a false alarm once in 150,000 runs."""
    cases = [random_case(seed) for seed in range(40)]
    deviation = sum(sampled(case, options_of(case, samples=500)).count.hits / 500 - case.truth for case in cases)
    variance = sum(case.truth * (1 - case.truth) / 500 for case in cases)
    assert variance > 0
    assert abs(deviation) <= 4.5 * math.sqrt(variance)


def test_replicates_share_the_samples_and_average_to_the_estimate() -> None:
    case = open_case()
    result = sampled(case, replace(options_of(case, samples=403), replicates=4))
    assert len(result.replicates) == 4
    assert np.average(result.replicates, weights=[101, 101, 101, 100]) == pytest.approx(result.count.hits / 403)


def test_the_curve_ends_at_the_estimate_and_costs_grow_along_it() -> None:
    case = open_case()
    result = sampled(case, options_of(case, samples=120))
    assert [point.samples for point in result.curve] == [10, 20, 50, 100, 120]
    for counts in zip(*result.curve, strict=True):
        assert list(counts) == sorted(counts)


def test_following_lost_samples_costs_more_and_stays_unbiased() -> None:
    """One window, 2,000 samples each way; |z| ≤ 4.5: a false alarm once in 150,000 runs."""
    case = open_case()
    stopping, plain = (
        sampled(case, replace(options_of(case, samples=2000), stops_when_lost=stops)) for stops in (True, False)
    )
    assert plain.count.token_evals > stopping.count.token_evals
    spread = math.sqrt(case.truth * (1 - case.truth) / 2000)
    assert abs(plain.count.hits / 2000 - case.truth) <= 4.5 * spread


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


@pytest.mark.parametrize("trials", [1, 2, 16, 117, 5000, 200_000])
@pytest.mark.parametrize("alpha", [0.05, 0.025, 1e-6])
def test_limits_equal_scipy(trials: int, alpha: float) -> None:
    for hits in {0, 1, trials // 10, trials // 2, trials - 1, trials}:
        high = 1.0 if hits == trials else special.betainccinv(hits + 1, trials - hits, alpha)
        low = 0.0 if hits == 0 else special.betaincinv(hits, trials - hits + 1, alpha)
        assert upper_limit(hits, trials, alpha=alpha) == pytest.approx(high, rel=1e-9)
        assert lower_limit(hits, trials, alpha=alpha) == pytest.approx(low, rel=1e-9, abs=1e-12)


chances = st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), min_size=1, max_size=40)


@given(chances=chances, alpha=st.sampled_from([0.05, 0.025]))
def test_limits_hold_for_trials_of_unequal_chances(chances: list[float], alpha: float) -> None:
    """The count's exact distribution, by adding trial after trial: the limits miss the mean at most `alpha` often."""
    count = np.ones(1)
    for chance in chances:
        count = np.convolve(count, [1 - chance, chance])
    mean, trials = float(np.mean(chances)), len(chances)
    too_low = [upper_limit(hits, trials, alpha=alpha) < mean - 1e-12 for hits in range(trials + 1)]
    too_high = [lower_limit(hits, trials, alpha=alpha) > mean + 1e-12 for hits in range(trials + 1)]
    assert count[too_low].sum() <= alpha + 1e-9
    assert count[too_high].sum() <= alpha + 1e-9
