"""The limit on the mass of many windows: against exact tails, simulated scans, and where nothing was sampled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from byrote.stats.limits import Evidence
from byrote.stats.risk import Stretches, expected_characters, mean_at_most, raised, total_mass

SCANS = 300


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.05, 0.01]))
def test_a_mean_above_the_limit_leaves_what_was_seen_a_chance_of_alpha_at_most(
    count: int, share: float, alpha: float
) -> None:
    hits = int(share * count)
    limit = mean_at_most(hits / count, count, alpha)
    assert hits / count <= limit <= 1
    assert limit == 1 or binom.cdf(hits, count, limit) <= alpha * (1 + 1e-9)
    assert hits or limit == pytest.approx(1 - alpha ** (1 / count), rel=1e-6)


def simulated_scan(random: np.random.Generator, *, windows: int = 60, untested: float = 0.0) -> tuple[Evidence, float]:
    """A scan of a document: a third passed the screen, of the rest a fifth was drawn, of which a share was not to be
    tested; and the mass there is."""
    mass = random.choice([0.0, 1e-4, 0.01, 0.3], size=windows) * random.random(windows)
    rates_low = np.arange(windows) >= windows // 3
    is_drawn = np.zeros(windows, dtype=np.bool_)
    is_drawn[random.choice(np.flatnonzero(rates_low), size=windows // 5, replace=False)] = True
    is_searched = ~rates_low | is_drawn
    lower = np.where(is_searched, 0.5 * mass, 0.0)
    sampled = np.where(is_searched, np.minimum(1 - lower, 0.02 + 2 * mass), 0.0)
    tickets = np.where(is_searched & (random.random(windows) < 0.9), 100.0, 0.0)
    tickets[is_drawn & (tickets > 0) & (random.random(windows) < untested)] = np.nan
    chance = np.divide(mass - lower, sampled, out=np.zeros(windows), where=sampled > 0)
    evidence = Evidence(
        lower=lower,
        upper=np.where(is_searched, lower + sampled, 1.0),
        p_verbatim=lower,
        density=np.where(rates_low, 1.0, np.nan),
        is_searched=is_searched,
        tickets=tickets,
        hits=random.binomial(np.nan_to_num(tickets).astype(int), chance).astype(np.float64),
        sampled_mass=sampled,
        base_mass=lower,
    )
    return evidence, float(mass.mean())


@pytest.mark.parametrize("untested", [0.0, 0.5])
def test_the_limit_fails_no_oftener_than_it_says(untested: float) -> None:
    """300 simulated scans at 80 %: 85 or more failures have a chance below 1e-3 if 20 % fail."""
    random = np.random.default_rng(5)
    found = [
        (total_mass(evidence, level=0.8), truth)
        for evidence, truth in (simulated_scan(random, untested=untested) for _ in range(SCANS))
    ]
    assert sum(limit.mean < truth for limit, truth in found) < 85
    assert all(limit.is_sampled for limit, _ in found)


def test_the_limit_lies_between_the_certified_ends_and_says_more_than_the_upper_one() -> None:
    random = np.random.default_rng(6)
    for _ in range(20):
        evidence, _ = simulated_scan(random)
        limit = total_mass(evidence)
        assert evidence.lower.mean() <= limit.mean < evidence.upper.mean() - 0.2
        assert (limit.known[~limit.is_open] == evidence.upper[~limit.is_open]).all()


def test_without_samples_and_audit_the_limit_is_the_certified_upper_end() -> None:
    evidence, _ = simulated_scan(np.random.default_rng(7))
    empty = np.zeros(len(evidence))
    bare = Evidence(
        evidence.lower, evidence.upper, evidence.p_verbatim, np.full(len(evidence), np.nan), evidence.is_searched,
        empty, empty, empty, empty,
    )  # fmt: skip
    limit = total_mass(bare)
    assert not limit.is_sampled
    assert limit.mean == pytest.approx(evidence.upper.mean())


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=6),
    st.floats(0, 5),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_no_way_to_spend_a_budget_recovers_more_than_raising_the_lowest(
    rows: list[tuple[int, float]], budget: float, queries: int, random: np.random.RandomState
) -> None:
    text = Stretches(np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))
    best = raised(text, budget)
    spent = float((best.characters * (best.chance - text.chance)).sum())
    assert spent == pytest.approx(min(budget, float((text.characters * (1 - text.chance)).sum())), abs=1e-9)
    for _ in range(10):
        weights = np.array([random.random() ** 3 for _ in rows])
        more = budget * weights / (weights.sum() or 1.0) / text.characters
        other = Stretches(text.characters, np.minimum(text.chance + more, 1.0))
        assert expected_characters(other, queries) <= expected_characters(best, queries) + 1e-9
