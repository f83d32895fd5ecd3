"""The residual estimator against enumeration: unbiased, covering, clipped to what is certified, priced correctly."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from byrote.explore.ball import Ball
from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.policy import Policy
from byrote.search.base import Limits
from byrote.search.screen_score import log_score_table
from byrote.verdict import Estimate
from tests.explore.adversarial_pools import POPULATIONS, SAMPLES, Population, holds
from tests.explore.estimator_cases import Case, open_case, random_case
from tests.search.reference import FrontierNode, frontier_of
from tests.table import TableModel

TINY = 1e-12


def estimated(case: Case, *, seed: int = 0, token_evals: int = 100, guided: bool = True, **more: float) -> Estimate:
    log_scores = log_score_table(case.target_probs, case.options.edit_budget) if guided else None
    options = ResidualOptions(token_evals=token_evals, relative_error=more.get("relative_error"))
    generator = np.random.default_rng([seed, 1])
    result: Estimate = case.explore(estimate_open(case.pool(), generator, options, log_scores=log_scores))
    return result


@pytest.mark.parametrize("guided", [False, True])
def test_estimates_are_unbiased_against_enumeration(guided: bool) -> None:
    """20 windows, 40 estimates each; the standardised sum of all errors, |z| ≤ 4.5: a false alarm in 150,000 runs."""
    deviation, variance = 0.0, 0.0
    for number in range(20):
        case = random_case(number)
        values = [estimated(case, seed=seed, guided=guided).value for seed in range(40)]
        deviation += np.mean(values) - case.truth
        variance += np.var(values, ddof=1) / 40
    assert variance > 0
    assert abs(deviation) <= 4.5 * math.sqrt(variance)


BANDS = (0.0, 1e-4, 1e-2, 0.3, 1.1)


def test_intervals_and_limits_cover_the_truth_in_every_band_of_mass() -> None:
    """500 random windows. Each interval covers with chance ≥ 95 %, so a band falls below the count that a binomial at
    95 % falls below once in 10⁵: 8 comparisons, a false alarm once in 12,000 runs."""
    cases = [random_case(seed) for seed in range(500)]
    estimates = [
        estimated(case, seed=seed, token_evals=(40, 100, 400)[seed % 3], guided=seed % 2 == 0)
        for seed, case in enumerate(cases)
    ]
    truths = np.array([case.truth for case in cases])
    covered = np.array(
        [e.interval.low - TINY <= t <= e.interval.high + TINY for e, t in zip(estimates, truths, strict=True)]
    )
    limited = np.array([t <= e.upper_limit + TINY for e, t in zip(estimates, truths, strict=True)])
    for low, high in itertools.pairwise(BANDS):
        inside = (truths >= low) & (truths < high)
        least = stats.binom.ppf(1e-5, inside.sum(), 0.95)
        assert inside.sum() >= 30
        assert covered[inside].sum() >= least
        assert limited[inside].sum() >= least
    assert sum(bool(e.samples) and e.value == c.pool().lower for c, e in zip(cases, estimates, strict=True)) >= 15, (
        "without hits"
    )


def two_tokens(chance: float) -> tuple[TableModel, OpenMass, float]:
    """0.5 is accepted, 0.5 open in one node that ends in the ball with this chance, decided by its next token."""
    certain, odds = [0.0, -math.inf], [math.log(chance), math.log1p(-chance)]
    histories = {(1, 0): odds, (1, 0, 0): certain, (1, 0, 1): certain}
    ball = Ball((0, 0, 0), distance="hamming", budget=0)
    pool = OpenMass(ball, frontier_of([FrontierNode((0,), math.log(0.5))]), accepted=(0.5,))
    return TableModel(torch.zeros(1, 2), explicit=histories), pool, 0.5 + 0.5 * chance


@pytest.mark.parametrize("chance", [0.97029, 0.5, 1 - 1e-6, 1e-6])
def test_intervals_do_not_collapse_where_all_samples_nearly_agree(chance: float) -> None:
    """200 seeds, bounds 0.5 and 1. Fewer than 170 of 200 cover at 95 % once in 10⁷ runs."""
    covering = 0
    for seed in range(200):
        model, pool, truth = two_tokens(chance)
        options = ResidualOptions(token_evals=400, relative_error=None)
        exploration = estimate_open(pool, np.random.default_rng(seed), options, log_scores=None)
        explorer = Explorer(model, Policy(1.0, 2), slots=1, limits=Limits(1, 3))
        ((_, estimate),) = explorer.run([ExploreTask(0, (1,), exploration)])
        assert estimate.interval.high - estimate.interval.low > 1e-5
        assert estimate.standard_error != 0
        assert estimate.upper_limit <= estimate.interval.high
        covering += estimate.interval.low <= truth <= estimate.interval.high
    assert covering >= 170


def test_a_limit_without_any_hit_follows_from_the_open_mass_alone() -> None:
    model, pool, _ = two_tokens(1e-12)
    options = ResidualOptions(token_evals=400, relative_error=None)
    exploration = estimate_open(pool, np.random.default_rng(0), options, log_scores=None)
    explorer = Explorer(model, Policy(1.0, 2), slots=1, limits=Limits(1, 3))
    ((_, estimate),) = explorer.run([ExploreTask(0, (1,), exploration)])
    assert estimate.value == pytest.approx(0.5)
    assert estimate.value + 1.96 * estimate.standard_error == pytest.approx(estimate.interval.high)
    assert estimate.upper_limit == pytest.approx(0.5 + 0.5 * (1 - 0.05 ** (1 / estimate.samples)))


def test_no_standard_error_is_below_the_spread_of_repeated_estimates() -> None:
    case = open_case()
    estimates = [estimated(case, seed=seed, token_evals=200) for seed in range(100)]
    spread = np.std([estimate.value for estimate in estimates])
    assert spread > 0
    assert min(estimate.standard_error for estimate in estimates) >= spread


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda population: population.name)
def test_adversarial_populations_are_covered_as_often_as_claimed(population: Population) -> None:
    """100 seeds, 16 samples. Fewer than 80 of 100 hold at 95 % once in 10⁷ runs; 19 comparisons. With standard errors
    from the differences of neighbouring strata, ± 1.96 of them held 42, 94, 21 and 21 times in the first four."""
    options = ResidualOptions(token_evals=None, samples=SAMPLES, relative_error=None)
    judged = [holds(population, population.estimate(options, seed)) for seed in range(100)]
    intervals, limits, errors = zip(*judged, strict=True)
    assert sum(intervals) >= 80
    assert sum(limits) >= 80
    assert set(errors) == {None} if population.unlisted else sum(map(bool, errors)) >= 80


def test_a_wanted_error_is_met_where_neighbouring_strata_cancel() -> None:
    """A third of the mass is open in two strata of 16. 16 samples have a relative error of 27 %."""
    population, goal = POPULATIONS[0], 0.1
    options = ResidualOptions(token_evals=100_000, relative_error=goal)
    estimates = [population.estimate(options, seed) for seed in range(40)]
    errors = [estimate.value / population.truth - 1 for estimate in estimates]
    assert math.sqrt(np.mean(np.square(errors))) <= goal
    assert max(estimate.standard_error / estimate.value for estimate in estimates) <= 1.2 * goal
    fewest = min(estimate.samples for estimate in estimates)
    assert fewest < population.estimate(ResidualOptions(token_evals=100_000, relative_error=None), 0).samples


def test_unlisted_mass_leaves_no_estimate_and_no_standard_error_of_0() -> None:
    ball = Ball((0, 1), distance="hamming", budget=1)
    pool = OpenMass(ball, frontier_of([]), accepted=(0.2, 0.5), unlisted=(0.0, 0.1))
    options = ResidualOptions(token_evals=10, relative_error=None)
    estimate = random_case(0).explore(estimate_open(pool, np.random.default_rng(0), options, log_scores=None))
    assert math.isnan(estimate.value)
    assert math.isnan(estimate.standard_error)
    assert estimate.interval[:2] == pytest.approx((0.5, 0.6))


def test_intervals_stay_within_the_certified_bounds() -> None:
    for number in range(60):
        case = random_case(number)
        bounds = case.pool().bounds()
        estimate = estimated(case, token_evals=40)
        assert bounds.lower[-1] <= estimate.interval.low <= estimate.interval.high <= bounds.upper[-1]
        assert bounds.lower[-1] <= estimate.upper_limit <= estimate.interval.high
        assert bounds.lower[-1] - TINY <= estimate.value <= bounds.upper[-1] + TINY


def test_nothing_open_is_exact_and_free() -> None:
    ball = Ball((0, 1), distance="hamming", budget=1)
    pool = OpenMass(ball, frontier_of([]), accepted=(0.2, 0.5))
    case = random_case(0)
    options = ResidualOptions(token_evals=10, relative_error=None)
    estimate = case.explore(estimate_open(pool, np.random.default_rng(0), options, log_scores=None))
    assert (estimate.value, estimate.standard_error, estimate.token_evals) == (0.5, 0.0, 0)
    assert (*estimate.interval[:2], estimate.upper_limit) == (0.5, 0.5, 0.5)


def test_mass_that_was_not_listed_widens_the_interval_upwards() -> None:
    ball = Ball((0, 1), distance="hamming", budget=1)
    pool = OpenMass(ball, frontier_of([FrontierNode((3,), math.log(0.1))]), accepted=(0.2, 0.5), unlisted=(0.1, 0.0))
    options = ResidualOptions(token_evals=50, relative_error=None)
    estimate = random_case(1).explore(estimate_open(pool, np.random.default_rng(0), options, log_scores=None))
    assert estimate.interval.high >= 0.6 - 1e-12
    assert pool.bounds().upper[-1] == pytest.approx(0.7)


def test_a_wanted_error_saves_samples() -> None:
    case = open_case()
    loose = estimated(case, token_evals=2000, relative_error=0.5)
    tight = estimated(case, token_evals=2000)
    assert loose.samples < tight.samples
    assert loose.standard_error <= 0.5 * loose.value
