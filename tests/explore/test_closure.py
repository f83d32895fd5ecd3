"""Tail closure by brute force: exactly the nodes with one completion, sound bounds, true masses."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.explore.open_mass import OpenMass
from byrote.explore.refinement import closable_nodes, close_tails
from byrote.types import DistanceName
from tests.explore.estimator_cases import Case, random_case
from tests.oracle import textbook_hamming, textbook_levenshtein

TINY = 1e-12


def completions_in_ball(path: tuple[int, ...], case: Case) -> list[tuple[int, ...]]:
    """By enumeration over the whole vocabulary, possible or not."""
    target = case.window.suffix_ids
    measure = textbook_hamming if case.options.distance == "hamming" else textbook_levenshtein
    tails = itertools.product(range(case.model.vocab_size), repeat=len(target) - len(path))
    return [tail for tail in tails if measure((*path, *tail), target) <= case.options.edit_budget]


def close(case: Case, pool: OpenMass, *, most_nodes: int = 1000) -> tuple[int, float, int]:
    """Nodes settled, the mass they moved to the lower bound, and the evaluations they took."""
    nodes, lower = len(pool.open_nodes()), pool.lower
    evals: int = case.explore(close_tails(pool, most_nodes=most_nodes))
    return nodes - len(pool.open_nodes()), pool.lower - lower, evals


@settings(max_examples=60)
@given(seed=st.integers(0, 5000))
def test_closable_nodes_have_the_targets_tail_as_their_only_completion(seed: int) -> None:
    case = random_case(seed)
    pool = case.pool()
    closable = set(closable_nodes(pool).tolist())
    for node in pool.open_nodes().tolist():
        path = pool.tree.path(node)
        completions = completions_in_ball(path, case)
        if node in closable:
            assert completions == [case.window.suffix_ids[len(path) :]]
        elif case.options.distance == "hamming":
            assert len(completions) > 1


@settings(max_examples=60)
@given(seed=st.integers(0, 5000))
def test_closing_moves_true_mass_to_the_lower_bound_and_refutes_the_rest(seed: int) -> None:
    case = random_case(seed)
    pool = case.pool()
    nodes = closable_nodes(pool)
    paths = [pool.tree.path(node) for node in nodes.tolist()]
    before = pool.bounds()
    settled, mass, _ = close(case, pool)
    after = pool.bounds()
    target = case.window.suffix_ids
    expected = sum(case.tree.finished.get((*path, *target[len(path) :]), 0.0) for path in paths)
    assert settled == len(paths)
    assert mass == pytest.approx(expected, abs=1e-12)
    assert after.lower[:-1] == before.lower[:-1], "settled continuations use the whole budget"
    refuted = float(np.exp(pool.tree.log_p[nodes]).sum()) - expected
    assert after.upper[-1] == pytest.approx(before.upper[-1] - refuted, abs=1e-12)
    assert after.lower[-1] <= case.truth + TINY
    assert all(truth <= upper + TINY for truth, upper in zip(case.truths, after.upper, strict=True))


def closing_case(distance: DistanceName) -> Case:
    """A window with several nodes to close."""
    wanted = (seed for seed in range(300) if (seed % 2 == 1) == (distance == "hamming"))
    return next(case for case in map(random_case, wanted) if len(closable_nodes(case.pool())) >= 3)


@pytest.mark.parametrize("distance", ["hamming", "levenshtein"])
def test_the_heaviest_are_closed_first_and_limits_hold(distance: DistanceName) -> None:
    case = closing_case(distance)
    pool = case.pool()
    heaviest = closable_nodes(pool)[0]
    settled, _, evals = close(case, pool, most_nodes=1)
    assert settled == 1
    assert not pool.tree.is_open[heaviest]
    assert evals <= len(case.window.ids) - 1, "a teacher-forced path costs at most all tokens but the last"
    assert close(case, case.pool(), most_nodes=0) == (0, 0.0, 0)
