"""Refinement by brute force: bounds monotone and sound at every step, budgets kept, verdicts decided."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.explore.refinement import OrderName, Refined, RefineOptions, refine
from byrote.search.base import SearchTask
from byrote.search.engine import Engine
from byrote.verdict import Bounds, Verdict
from tests.explore.estimator_cases import LIMITS, Case, open_case, random_case, watched

TINY = 1e-12
EVERYTHING = RefineOptions(token_evals=100_000, threshold=None, order="mass")


def refined(case: Case, options: RefineOptions, *, pool: OpenMass | None = None) -> tuple[Refined, list[Bounds]]:
    steps: list[Bounds] = []
    pool = pool or case.pool()
    exploration = refine(pool, options, target_probs=case.target_probs)
    return case.explore(watched(exploration, pool, steps)), steps


orders = st.sampled_from(["mass", "tail", "width", "both"])


@settings(max_examples=60)
@given(seed=st.integers(0, 5000), order=orders)
def test_bounds_are_monotone_and_sound_at_every_step(seed: int, order: OrderName) -> None:
    case = random_case(seed)
    _, steps = refined(case, RefineOptions(token_evals=100_000, threshold=None, order=order))
    previous = case.outcome.bounds
    for bounds in steps:
        assert all(now >= before - TINY for now, before in zip(bounds.lower, previous.lower, strict=True))
        assert all(now <= before + TINY for now, before in zip(bounds.upper, previous.upper, strict=True))
        assert all(lower <= truth + TINY for lower, truth in zip(bounds.lower, case.truths, strict=True))
        assert all(truth <= upper + TINY for truth, upper in zip(case.truths, bounds.upper, strict=True))
        assert list(bounds.upper) == sorted(bounds.upper)
        previous = bounds


@settings(max_examples=60)
@given(seed=st.integers(0, 5000), order=orders, viability=st.sampled_from(["exact", "published"]))
def test_unlimited_refinement_finds_the_truth_at_every_budget_of_edits(
    seed: int, order: OrderName, viability: str
) -> None:
    case = random_case(seed, viability=viability)
    result, _ = refined(case, RefineOptions(token_evals=100_000, threshold=None, order=order))
    assert result.bounds.lower == pytest.approx(case.truths, abs=1e-12)
    assert result.bounds.upper == pytest.approx(case.truths, abs=1e-12)


@settings(max_examples=40)
@given(seed=st.integers(0, 5000), token_evals=st.integers(0, 60))
def test_a_budget_is_never_exceeded(seed: int, token_evals: int) -> None:
    result, _ = refined(random_case(seed), RefineOptions(token_evals=token_evals, threshold=None, order="mass"))
    assert result.token_evals <= token_evals
    assert result.expanded <= result.token_evals


def textbook_worth(pool: OpenMass, node: int, order: str, probs: Sequence[float], *, missing: int) -> float:
    """The formulas of the module, node by node."""
    mass, depth, length = math.exp(pool.tree.log_p[node]), int(pool.tree.depths[node]), pool.ball.length
    room = pool.ball.budget - int(pool.tree.least[node]) + 1
    bounds, tree, steps = pool.bounds(), pool.tree, max(1, length - depth) + missing
    if order == "mass":
        return mass / room**2 / (1 + missing)
    if order == "tail":
        tail = math.prod(max(0.2, prob) for prob in probs[depth:])
        return mass * room ** (2 if bounds.lower[-1] < 0.001 * bounds.upper[-1] else 1) * tail / steps
    heaviest = max(math.exp(tree.log_p[other]) for other in pool.open_nodes() if tree.depths[other] == depth)
    return mass * room**2 / heaviest / steps


@settings(max_examples=80)
@given(seed=st.integers(0, 5000), order=st.sampled_from(["mass", "tail", "width"]), is_in_memory=st.booleans())
def test_the_first_node_is_the_one_the_formula_ranks_first(seed: int, order: OrderName, is_in_memory: bool) -> None:
    case = random_case(seed)
    pool = case.pool()
    assume(len(pool.open_nodes()) >= 2)
    options = RefineOptions(token_evals=100_000, threshold=None, order=order)
    request = next(refine(pool, options, target_probs=case.target_probs, is_in_memory=is_in_memory))
    worth = {
        int(node): textbook_worth(
            pool, node, order, case.target_probs, missing=0 if is_in_memory else int(pool.tree.depths[node]) - 1
        )
        for node in pool.open_nodes()
    }
    assert worth[int(request.nodes[0])] == pytest.approx(max(worth.values()))


def test_found_continuations_carry_their_probability_and_distance() -> None:
    case = open_case()
    pool = OpenMass(case.pool().ball, case.frontier, accepted=case.outcome.bounds.lower, keep=1000)
    refined(case, EVERYTHING, pool=pool)
    assert pool.found
    for found in pool.found:
        assert math.exp(found.log_p) == pytest.approx(case.tree.finished[found.token_ids])
    known = {continuation.token_ids for continuation in case.outcome.continuations}
    assert not known & {found.token_ids for found in pool.found}


@pytest.mark.parametrize("place", ["below", "above"])
def test_refinement_stops_as_soon_as_the_verdict_is_decided(place: str) -> None:
    case = open_case()
    lower, upper = case.outcome.bounds.lower[-1], case.outcome.bounds.upper[-1]
    threshold = (case.truth + upper) / 2 if place == "above" else (lower + case.truth) / 2
    options = RefineOptions(token_evals=100_000, threshold=threshold, order="mass")
    result, steps = refined(case, options)
    assert result.bounds.verdict(threshold) == (Verdict.RULED_OUT if place == "above" else Verdict.EXTRACTABLE)
    assert all(bounds.verdict(threshold) == Verdict.NOT_SHOWN for bounds in steps[:-1])


def test_results_do_not_depend_on_slots_or_order() -> None:
    case = open_case()
    frontier = case.frontier
    assert len(frontier) >= 2

    def tasks(keys: range) -> list[ExploreTask[Refined]]:
        options = [RefineOptions(token_evals=20 + 5 * key, threshold=None, order="mass") for key in keys]
        return [
            ExploreTask(key, case.window.prefix_ids, refine(case.pool(), option))
            for key, option in zip(keys, options, strict=True)
        ]

    results = [
        dict(Explorer(case.model, case.options.policy, slots=slots, limits=LIMITS).run(tasks(keys)))
        for slots, keys in ((1, range(6)), (2, range(5, -1, -1)), (9, range(6)))
    ]
    assert results[0] == results[1] == results[2]


def test_the_engines_frontier_refines_like_the_references() -> None:
    case = open_case()
    engine = Engine(case.model, case.options, slots=2, limits=LIMITS)
    (outcome,) = engine.run([SearchTask(0, case.window.prefix_ids, case.window.suffix_ids)])
    assert outcome.frontier is not None
    pool = OpenMass(case.pool().ball, outcome.frontier, accepted=outcome.bounds.lower)
    result, _ = refined(case, EVERYTHING, pool=pool)
    assert result.bounds.upper == pytest.approx(case.truths, abs=1e-12)


def test_unlisted_mass_stays_in_the_upper_bounds_from_its_least_distance_on() -> None:
    case = open_case()
    unlisted = (0.0, 0.01, *(0.0,) * (case.options.edit_budget - 1))
    pool = OpenMass(case.pool().ball, case.frontier, accepted=case.outcome.bounds.lower, unlisted=unlisted)
    result, _ = refined(case, EVERYTHING, pool=pool)
    assert result.bounds.upper == pytest.approx([case.truths[0], *(truth + 0.01 for truth in case.truths[1:])])


def test_nodes_that_cannot_end_in_the_ball_leave_the_upper_bound_at_once() -> None:
    """The published rule banks nodes that the exact rule refutes without any evaluation."""
    cases = [random_case(seed, viability="published") for seed in range(0, 60, 2)]
    uppers = [case.pool().bounds().upper[-1] for case in cases]
    assert any(upper < case.outcome.bounds.upper[-1] - 1e-6 for case, upper in zip(cases, uppers, strict=True))
    assert all(case.truth <= upper + TINY for case, upper in zip(cases, uppers, strict=True))
