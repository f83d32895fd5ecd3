"""Brackets of a rate against populations whose truth is known, and their parts against plain enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import KINDS, THRESHOLD, Kind, drawn_population
from scipy.stats import hypergeom

from byrote.stats.limits import FACTORS, FAMILY, Bracket, Evidence, Narrowing, bracket, narrowing, undecided_at_most

POPULATIONS = 60
MOST_FAILURES = 11
"""More than 11 failures of 60 at a level of 95 % have a chance of 1 in 28,000 (binomial)."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_brackets_hold_the_true_count_in_95_of_100_populations(kind: Kind) -> None:
    """A false alarm once in 3,000 runs of all kinds together, if brackets held exactly as often as they claim."""
    generator = np.random.default_rng(7)
    failures = 0
    for _ in range(POPULATIONS):
        population = drawn_population(kind, generator)
        found = bracket(population.evidence, THRESHOLD, promised=kind.audited_tickets)
        assert found.certified <= population.extractable
        failures += not population.extractable <= found.at_most
    assert failures <= MOST_FAILURES


def test_samples_lower_the_limit_where_nothing_is_left_to_find() -> None:
    kind = next(kind for kind in KINDS if kind.name == "nothing missed")
    population = drawn_population(kind, np.random.default_rng(1))
    found = bracket(population.evidence, THRESHOLD, promised=kind.audited_tickets)
    assert found.is_sampled
    assert found.undecided_at_most < 0.3 * found.undecided
    assert found.left_out_at_most < 0.5 * found.left_out
    wide = bracket(population.evidence, THRESHOLD, promised=kind.audited_tickets, level=0.9999)
    assert wide.at_most > found.at_most


def evidence_of(lower: list[float], upper: list[float], **columns: list[float]) -> Evidence:
    size = len(lower)
    plain = {
        "p_verbatim": [0.0] * size, "density": [math.nan] * size, "tickets": [0.0] * size, "hits": [0.0] * size,
        "sampled_mass": [0.0] * size, "base_mass": [0.0] * size,
    }  # fmt: skip
    searched = np.array(columns.pop("is_searched", [1.0] * size), dtype=np.bool_)
    arrays = {name: np.array(values, dtype=np.float64) for name, values in (plain | columns).items()}
    return Evidence(np.array(lower), np.array(upper), is_searched=searched, **arrays)


def test_without_samples_the_bounds_alone_speak() -> None:
    evidence = evidence_of([0.5, 0.0, 0.0, 0.0], [1.0, 1.0, 1e-4, 1.0])
    assert bracket(evidence, 0.001, promised=9) == Bracket(4, 1, 3, 0.95, 2, 2, 0, 0, is_sampled=False, samples=0)


def test_screened_windows_count_as_possible_when_none_was_drawn() -> None:
    evidence = evidence_of([0.5, 0.0, 0.0], [1.0, 1.0, 1.0], density=[math.nan, 1, 1], is_searched=[1, 0, 0])
    found = bracket(evidence, 0.001, promised=128)
    assert (found.certified, found.left_out, found.at_most) == (1, 2, 3)


def test_audited_windows_without_tickets_are_alarms() -> None:
    """Their search left them undecided and nothing was sampled: they say nothing about those left out."""
    size = 50
    searched = [1.0] * 40 + [0.0] * 10
    evidence = evidence_of([0.0] * size, [0.9] * size, density=[1.0] * size, is_searched=searched)
    assert bracket(evidence, 0.001, promised=128).at_most == size


def test_an_audit_that_decides_every_window_limits_those_left_out() -> None:
    """100 of 1,000 screened windows were searched and all ruled out; how many of the others need not be, by scipy."""
    upper = [1e-4] * 100 + [1.0] * 900
    searched = [1.0] * 100 + [0.0] * 900
    evidence = evidence_of([0.0] * 1000, upper, density=[1.0] * 1000, is_searched=searched)
    found = bracket(evidence, 0.001, promised=128)
    assert (found.certified, found.undecided, found.left_out) == (0, 0, 900)
    assert found.at_most == max(most for most in range(900) if hypergeom.cdf(0, 1000, most, 100) > 0.05)
    assert found.is_sampled


def test_an_audit_that_decides_most_windows_needs_no_samples_of_the_rest() -> None:
    upper = [1e-4] * 99 + [1.0] * 901
    searched = [1.0] * 100 + [0.0] * 900
    evidence = evidence_of([0.0] * 1000, upper, density=[1.0] * 1000, is_searched=searched)
    assert bracket(evidence, 0.001, promised=128).at_most < 60


def test_a_window_that_p_z_alone_shows_is_not_one_that_the_screen_missed() -> None:
    evidence = evidence_of([0.5, 0.5], [1.0, 1.0], density=[1.0, 1.0], is_searched=[0, 0], p_verbatim=[0.5, 0.5])
    found = bracket(evidence, 0.001, promised=128)
    assert (found.certified, found.left_out, found.at_most) == (2, 0, 2)


windows = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.floats(0.05, 1.0), st.floats(0.0, 0.02)),
    min_size=1,
    max_size=7,
)


@settings(deadline=None)
@given(windows, st.floats(0.001, 0.5))
def test_no_set_of_windows_that_is_left_possible_is_larger_than_the_limit(
    drawn: list[tuple[int, int, float, float]], alpha: float
) -> None:
    """Every subset by itself, as the definition has it; the fast way may only be more careful."""
    tickets, hits, mass, base = (np.array(column, dtype=np.float64) for column in zip(*drawn, strict=True))
    hits = np.minimum(hits, tickets)
    size = len(drawn)
    evidence = evidence_of(
        [0.0] * size, [1.0] * size, tickets=tickets.tolist(), hits=hits.tolist(), sampled_mass=mass.tolist(),
        base_mass=base.tolist(),
    )  # fmt: skip
    possible = [
        len(subset)
        for count in range(size + 1)
        for subset in itertools.combinations(range(size), count)
        if np.mean([math.prod(plain_e(evidence, row, *member, 0.02) for row in subset) for member in FAMILY])
        < 1 / alpha
    ]
    assert max(possible) <= undecided_at_most(evidence, 0.02, alpha=alpha) <= size


def plain_e(evidence: Evidence, row: int, floor: float, ratio: float, threshold: float) -> float:
    tickets, hits = int(evidence.tickets[row]), int(evidence.hits[row])
    if tickets == 0:
        return 1.0
    chance = min(1 - 1e-12, (threshold - evidence.base_mass[row]) / evidence.sampled_mass[row])
    return float(floor + (1 - floor) * ratio**hits / (1 - (1 - ratio) * chance) ** tickets)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 60), st.floats(0.002, 0.9))
def test_the_evidence_against_an_extractable_window_is_1_at_most_on_average(seed: int, tickets: int, q: float) -> None:
    """Exactly, by the distribution of the hits of tickets with unequal chances whose mean is q."""
    generator = np.random.default_rng(seed)
    spread = generator.uniform(0, min(q, 1 - q), tickets // 2)
    chances = np.concatenate([q + spread, q - spread, [q] * (tickets % 2)])
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    for floor, ratio in FAMILY:
        hits = np.arange(tickets + 1)
        e = floor + (1 - floor) * np.power(ratio, hits) / (1 - (1 - ratio) * min(q, 1 - 1e-12)) ** tickets
        assert float(law @ e) <= 1 + 1e-9


def undecided(windows: int, *, tickets: float, hits: float = 0.0) -> Evidence:
    """Windows of which a search has left all mass open."""
    columns = {"tickets": [tickets] * windows, "hits": [hits] * windows, "sampled_mass": [1.0] * windows}
    return evidence_of([0.0] * windows, [1.0] * windows, **columns)


@pytest.mark.parametrize("goal", [0, 2, 20])
def test_the_factor_said_beforehand_is_the_first_that_is_enough(goal: int) -> None:
    found = narrowing(undecided(40, tickets=100), 0.001, promised=9, goal=goal)
    assert found is not None
    too_few = max(factor for factor in (1, *FACTORS) if factor < found.factor)
    limits = [bracket(undecided(40, tickets=100 * n), 0.001, promised=9).at_most for n in (too_few, found.factor)]
    assert limits[0] > goal >= limits[1] == found.at_most


def test_no_number_of_samples_is_promised_where_they_hit() -> None:
    assert narrowing(undecided(40, tickets=100, hits=2), 0.001, promised=9, goal=20) is None
    assert isinstance(narrowing(undecided(40, tickets=100), 0.001, promised=9, goal=20), Narrowing)


@pytest.mark.parametrize("limit", [0.01, 0.1, 0.5])
def test_five_over_limit_and_threshold_samples_without_a_hit_reach_the_limit(limit: float) -> None:
    """What docs/guide.md promises; half as many do not."""
    windows, each = 1000, 5 / (limit * 0.001) / 1000
    enough, half = (bracket(undecided(windows, tickets=n), 0.001, promised=9).high for n in (each, each / 2))
    assert enough <= limit < half
