"""Limits from sampled answers, and the check of bounds: against enumeration, and over simulated populations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from byrote.stats.answers import check_bounds, extractable_at_most, log_tail, mean_mass_at_most


def hit_distribution(answers: list[int], chances: list[float]) -> np.ndarray:
    """P(0 hits), P(1 hit), …: one answer after the other."""
    distribution = np.ones(1)
    for count, chance in zip(answers, chances, strict=True):
        for _ in range(count):
            distribution = np.convolve(distribution, [1 - chance, chance])
    return distribution


probabilities = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))


@settings(max_examples=200, deadline=None)
@given(windows=st.lists(st.tuples(st.integers(0, 3), probabilities), min_size=1, max_size=12), data=st.data())
def test_the_tail_is_never_below_the_exact_one(windows: list[tuple[int, float]], data: st.DataObject) -> None:
    answers, chances = map(list, zip(*windows, strict=True))
    distribution = hit_distribution(answers, chances)
    hits = data.draw(st.integers(0, len(distribution) - 1))
    bound = log_tail(hits, np.array(answers), np.array(chances))
    assert math.exp(bound) >= distribution[: hits + 1].sum() * (1 - 1e-9) - 1e-15


def test_the_tail_is_close_enough_to_the_exact_one_to_be_of_use() -> None:
    answers, chances = np.full(300, 2), np.linspace(0.1, 0.9, 300)
    exact = math.log(hit_distribution(answers.tolist(), chances.tolist())[:236].sum())
    assert exact < -10
    assert log_tail(235, answers, chances) < 0.75 * exact


@settings(max_examples=100, deadline=None)
@given(windows=st.integers(0, 400), answers=st.integers(1, 4), hits=st.integers(0, 5), threshold=st.floats(1e-3, 0.5))
def test_no_more_windows_than_make_so_few_hits_likely(windows: int, answers: int, hits: int, threshold: float) -> None:
    limit = extractable_at_most(windows, hits, answers, threshold)
    likely = [count for count in range(windows + 1) if stats.binom.cdf(hits, count * answers, threshold) >= 0.05]
    assert limit == max(likely)


def test_a_few_thousand_answers_without_a_hit() -> None:
    assert mean_mass_at_most(0, 2_534) == pytest.approx(0.00118, abs=1e-5)
    assert extractable_at_most(10_000, 0, 2, 0.001) == 1_497


def populations(generator: np.random.Generator) -> np.ndarray:
    """True masses: mostly nothing, some around τ, a few that a screen would have missed."""
    windows = int(generator.integers(50, 400))
    masses = generator.choice([0.0, 1e-5, 5e-4, 1e-3, 2e-3, 0.05], p=generator.dirichlet(np.ones(6)), size=windows)
    masses[: generator.integers(0, 5)] = generator.choice([0.3, 0.9])
    return masses


def test_limits_hold_in_95_of_100_populations() -> None:
    """2,000 populations, each asked once: at most 5 % of limits are too low. False alarm below 1e-6 (binomial)."""
    generator = np.random.default_rng(17)
    too_low = np.zeros(2, dtype=int)
    for _ in range(2_000):
        masses, answers = populations(generator), int(generator.integers(1, 6))
        hits = int(generator.binomial(answers, masses).sum())
        too_low[0] += mean_mass_at_most(hits, answers * len(masses)) < masses.mean()
        too_low[1] += extractable_at_most(len(masses), hits, answers, 1e-3) < (masses >= 1e-3).sum()
    assert (too_low <= stats.binom.isf(1e-6, 2_000, 0.05)).all()


def bounds(generator: np.random.Generator, windows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses by ε, and bounds around them."""
    masses = np.cumsum(generator.dirichlet(np.ones(7), size=windows)[:, :6], axis=1) * generator.random((windows, 1))
    lower = masses * generator.choice([0.7, 0.9, 1.0], size=(windows, 1))
    upper = np.minimum(1.0, masses * generator.choice([1.0, 1.2, 10.0], size=(windows, 1)))
    return masses, lower, upper


def asked(generator: np.random.Generator, masses: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Hits by ε: one draw an answer, a hit within ε edits if it falls below the mass within ε edits."""
    hits = np.zeros(masses.shape, dtype=np.int64)
    for _ in range(answers.max(initial=0)):
        hits += generator.random((len(masses), 1)) < masses
    return hits


def test_true_bounds_are_not_contradicted() -> None:
    """200 runs; false alarm below 2e-4 by construction."""
    generator = np.random.default_rng(3)
    for _ in range(200):
        masses, lower, upper = bounds(generator, 300)
        answers = np.full(300, 2)
        check = check_bounds(lower, upper, answers, asked(generator, masses, answers))
        assert check.contradictions == ()
        for row in check.expected:
            assert row.at_least <= row.at_most


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_bound_on_a_tenth_of_the_windows_is_caught_with_20_000_answers(seed: int) -> None:
    """Exact bounds, those of a tenth of the windows half as large again as the truth."""
    generator = np.random.default_rng(seed)
    windows, answers = 10_000, np.full(10_000, 2)
    masses = np.cumsum(generator.dirichlet(np.ones(7), size=windows)[:, :6], axis=1)
    lower = masses.copy()
    planted = generator.random(windows) < 0.1
    lower[planted] = np.minimum(1.0, 1.5 * lower[planted])
    hits = asked(generator, masses, answers)
    assert check_bounds(masses, masses, answers, hits).contradictions == ()
    found = check_bounds(lower, np.maximum(masses, lower), answers, hits).contradictions
    assert found
    assert all(contradiction.expected.hits < contradiction.expected.at_least for contradiction in found)


def test_a_window_that_cannot_be_is_named() -> None:
    lower = np.array([[0.2], [1.0], [0.3]])
    check = check_bounds(lower, np.ones((3, 1)), np.full(3, 2), np.array([[0], [1], [1]]))
    assert [contradiction.rows.tolist() for contradiction in check.contradictions] == [[1]]


def test_a_hit_that_upper_bounds_rule_out_is_named() -> None:
    upper = np.array([[0.2], [0.0], [0.3]])
    check = check_bounds(np.zeros((3, 1)), upper, np.full(3, 2), np.array([[0], [1], [1]]))
    assert [contradiction.rows.tolist() for contradiction in check.contradictions] == [[1]]
