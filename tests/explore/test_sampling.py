"""Sampling against enumeration: unbiased however samples move, independent, shared evaluations, strata by mass."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from byrote.explore import sampling as sampling_module
from byrote.explore.ball import Ball
from byrote.explore.base import Exploration
from byrote.explore.sampling import Sampled, Sampler, Samples, unit_line
from byrote.explore.tree import Tree
from tests.explore.test_explorer import POLICY, PREFIX, explored
from tests.oracle import enumerate_tree
from tests.table import TableModel


def sampled_groups(*, is_stratified: bool, stops_when_lost: bool = True) -> tuple[NDArray[np.float64], float, Sampled]:
    """400 groups of 25 samples: the groups' shares of hits, the truth by enumeration, and everything sampled."""
    model = TableModel.random(11, vocab_size=4, spread=1.5, eos_ids=frozenset({3}))
    suffix = (0, 1, 2, 0)
    ball = Ball(suffix, distance="levenshtein", budget=2, eos_ids=model.eos_ids)
    truth = enumerate_tree(model, PREFIX, 4, POLICY).mass_within(suffix, 2, "levenshtein")
    generator = np.random.default_rng(0)
    root = np.zeros(1, dtype=np.int64)
    strata = [Samples.stratified(25, root, np.ones(1), generator) for _ in range(400)]
    samples = Samples(*map(np.concatenate, zip(*strata, strict=True))) if is_stratified else Samples.plain(10_000)
    sampled = explored(model, Sampler(Tree(ball)).follow(samples, generator, stops_when_lost=stops_when_lost))
    return sampled.hits.reshape(400, 25).mean(1), truth, sampled


@pytest.mark.parametrize("is_stratified", [False, True])
@pytest.mark.parametrize("stops_when_lost", [False, True])
def test_hits_are_unbiased_however_samples_move(is_stratified: bool, stops_when_lost: bool) -> None:
    """Means of 400 groups of 25 samples against enumeration. |z| ≤ 4.5: a false alarm once in 75,000 runs a case."""
    shares, truth, sampled = sampled_groups(is_stratified=is_stratified, stops_when_lost=stops_when_lost)
    assert 0.02 < truth < 0.98
    exact = sampled.shares.reshape(400, 25).mean(1)
    for values in (shares, exact):
        assert abs(values.mean() - truth) <= 4.5 * values.std() / math.sqrt(400)
    assert exact.var() < shares.var()
    plain = truth * (1 - truth) / 25
    if is_stratified:
        assert shares.var() < 0.8 * plain
    else:
        assert shares.var() == pytest.approx(plain, rel=0.4)  # binomial: 6 standard errors


def test_stratified_samples_are_independent() -> None:
    """Hits of two samples of a group are uncorrelated over 400 groups: the largest |z| of at most 300 pairs is below
    5.5 (a false alarm once in 90,000 runs)."""
    _, _, sampled = sampled_groups(is_stratified=True)
    groups = sampled.hits.reshape(400, 25).astype(np.float64)
    varying = groups[:, groups.std(0) > 0.1]
    standardised = (varying - varying.mean(0)) / varying.std(0)
    correlations = standardised.T @ standardised / 400
    others = correlations[np.triu_indices(varying.shape[1], 1)]
    assert len(others) >= 10
    assert np.abs(others).max() * math.sqrt(400) < 5.5


def sampling(model: TableModel, *, seed: int, samples: int, **how: bool) -> Exploration[Sampled]:
    ball = Ball((0, 1, 2, 0), distance="levenshtein", budget=1, eos_ids=model.eos_ids)
    return Sampler(Tree(ball)).follow(Samples.plain(samples), np.random.default_rng(seed), **how)


def test_sampling_costs_what_a_naive_recount_says() -> None:
    model = TableModel.random(8, vocab_size=4)
    visited: list[int] = []

    def watched(exploration: Exploration[Sampled]) -> Exploration[Sampled]:
        request = next(exploration)
        try:
            while True:
                visited.extend(request.nodes.tolist())
                request = exploration.send((yield request))
        except StopIteration as end:
            sampled: Sampled = end.value
            return sampled

    stopping = explored(model, watched(sampling(model, seed=1, samples=120)))
    assert stopping.token_evals == len(PREFIX) + len([node for node in visited if node])
    assert len(visited) == len(set(visited)), "samples at the same node share its evaluation"
    plain = explored(model, sampling(model, seed=1, samples=120, stops_when_lost=False))
    assert stopping.token_evals < plain.token_evals <= len(PREFIX) + 3 * 120


@pytest.mark.parametrize("wide", [0, 1024])
def test_what_earlier_samples_learned_is_not_asked_again(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "WIDE", wide)
    model = TableModel.random(8, vocab_size=4)
    ball = Ball((0, 1, 2, 0), distance="levenshtein", budget=1, eos_ids=model.eos_ids)

    def twice() -> Exploration[list[Sampled]]:
        walks, results = Sampler(Tree(ball)), []
        for _ in range(2):
            results.append((yield from walks.follow(Samples.plain(300), np.random.default_rng(4))))
        return results

    first, second = explored(model, twice())
    assert (first.hits == second.hits).all()
    assert (first.shares == second.shares).all()
    assert second.token_evals == (first.token_evals if wide == 0 else 0)


weights = st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda values: sum(values) > 0.01)


@given(count=st.integers(1, 60), weights=weights, seed=st.integers(0, 1000))
def test_strata_follow_the_masses_and_cover_each_line_once(count: int, weights: list[float], seed: int) -> None:
    mass = np.array(weights)
    starts, low, high = Samples.stratified(count, np.arange(len(mass)), mass, np.random.default_rng(seed))
    assert (mass[starts] > 0).all()
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    expected = count * mass / mass.sum()
    found = np.bincount(starts, minlength=len(mass))
    assert (np.abs(found - expected) < 2).all(), "only the two parts at a mass's ends can go elsewhere"
    # On the line of all masses, each sample's part lies within its own stratum.
    edges = unit_line(mass)
    lengths = np.diff(edges)[starts]
    order = np.arange(count)
    assert (edges[starts] + low * lengths >= order / count - 1e-9).all()
    assert (edges[starts] + high * lengths <= (order + 1) / count + 1e-9).all()
