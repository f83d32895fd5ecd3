"""The method's invariants, by brute force on table models, for the engine and for the reference."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from byrote.policy import Policy
from byrote.search.base import SearchOptions, SearchTask
from tests.oracle import enumerate_tree, nearest_completion
from tests.search.cases import TINY, Case, Search, both, by_engine, cases, measure_of
from tests.search.reference import nodes_of
from tests.search.test_engine_equals_reference import PLAIN, all_options, policies_inside
from tests.table import TableModel


@both
@settings(max_examples=60)
@given(case=cases())
def test_bounds_enclose_the_truth_at_every_smaller_budget(run: Search, case: Case) -> None:
    """Every variant, stop rule, cap, nucleus and EOS set: one run gives valid bounds at every ε up to its budget."""
    outcome, tree = run(*case), case.enumerated()
    lower, upper = outcome.bounds.lower, outcome.bounds.upper
    assert len(lower) == len(upper) == case.options.edit_budget + 1
    for edits, (low, high) in enumerate(zip(lower, upper, strict=True)):
        truth = tree.mass_within(case.task.suffix_ids, edits, case.options.distance)
        assert low - TINY <= truth <= high + TINY
        assert low <= high <= 1
    assert list(lower) == sorted(lower)
    assert list(upper) == sorted(upper)


@st.composite
def cases_with_policies(draw: st.DrawFn) -> Case:
    case = draw(cases())
    policy = replace(case.options.policy, top_p=None)
    distance = "hamming" if case.options.distance == "none" else case.options.distance
    options = replace(case.options, policy=policy, distance=distance)
    return case._replace(options=replace(options, policies=draw(policies_inside(options))))


@both
@settings(max_examples=60)
@given(case=cases_with_policies())
def test_bounds_under_further_policies_enclose_their_truth(run: Search, case: Case) -> None:
    model, task, options = case
    outcome = run(*case)
    assert len(outcome.policy_bounds) == len(options.policies)
    for policy, bounds in zip(options.policies, outcome.policy_bounds, strict=True):
        tree = enumerate_tree(model, task.prefix_ids, len(task.suffix_ids), policy)
        for edits, (low, high) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
            truth = tree.mass_within(task.suffix_ids, edits, options.distance)
            assert low - TINY <= truth <= high + TINY
            assert low <= high <= 1


def test_a_search_without_limits_knows_every_policy_exactly() -> None:
    """With all beams kept nothing is open under any policy, and both bounds are the enumerated mass."""
    model = TableModel.random(3, vocab_size=4, spread=2.0, eos_ids=frozenset({0}))
    task = SearchTask(7, (1, 2), (2, 1, 3, 1))
    policies = (
        Policy(1.0, 2),
        Policy(0.5, 3),
        Policy(1.6, 3),
        Policy(1.0, 3, 0.7),
        Policy(0.4, 2, 0.9),
        Policy(1.0, 1),
    )
    options = replace(PLAIN, beam_width=300, policies=policies)
    outcome = by_engine(model, task, options)
    for policy, bounds in zip(policies, outcome.policy_bounds, strict=True):
        tree = enumerate_tree(model, task.prefix_ids, 4, policy)
        masses = [tree.mass_within(task.suffix_ids, edits, options.distance) for edits in range(3)]
        assert bounds.lower == pytest.approx(masses, abs=TINY)
        assert bounds.upper == pytest.approx(masses, abs=TINY)
    assert len({bounds.lower for bounds in outcome.policy_bounds}) == len(policies)


@both
@settings(max_examples=60)
@given(case=cases())
def test_open_mass_is_filed_under_the_least_distance_it_can_end_with(run: Search, case: Case) -> None:
    """Enumerate the completions of every open node: the exact rules know the least distance, the others less."""
    model, task, options = case
    options = replace(options, max_children=None)
    outcome = run(model, task, options)
    assert outcome.frontier is not None
    expected = [0.0] * (options.edit_budget + 1)
    for node in nodes_of(outcome.frontier):
        nearest = nearest_completion(
            node.token_ids, task.suffix_ids, vocabulary=model.vocab_size, distance=options.distance
        )
        expected[min(nearest, options.edit_budget)] += math.exp(node.log_p)
    found = [sum(parts) for parts in zip(outcome.bank, outcome.beam_left, strict=True)]
    assert sum(found) == pytest.approx(sum(expected), rel=1e-9, abs=1e-12)
    if options.distance == "hamming" or (options.distance == "levenshtein" and options.viability == "exact"):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    for edits in range(options.edit_budget + 1):
        assert sum(found[: edits + 1]) >= sum(expected[: edits + 1]) - TINY
    if options.distance == "none":
        assert sum(found[1:]) == 0, "the baseline knows no distances on the way: everything may still end anywhere"
        assert outcome.bounds.upper == pytest.approx(
            [min(1.0, low + 1 - outcome.covered - outcome.eos) for low in outcome.bounds.lower], abs=1e-9
        )


@both
@settings(max_examples=60)
@given(case=cases())
def test_paths_are_distinct_and_carry_their_true_probability_and_distance(run: Search, case: Case) -> None:
    outcome, tree = run(*case), case.enumerated()
    assert outcome.frontier is not None
    paths = [c.token_ids for c in outcome.continuations]
    assert len(set(paths)) == len(paths)
    log_ps = [c.log_p for c in outcome.continuations]
    assert log_ps == sorted(log_ps, reverse=True)
    for continuation in outcome.continuations:
        assert continuation.log_p == pytest.approx(math.log(tree.finished[continuation.token_ids]), rel=1e-9, abs=1e-12)
        assert continuation.distance == measure_of(case.options)(continuation.token_ids, case.task.suffix_ids)
    for node in nodes_of(outcome.frontier):
        assert node.log_p == pytest.approx(math.log(tree.partial[node.token_ids]), rel=1e-9, abs=1e-12)


@both
@settings(max_examples=60)
@given(case=cases())
def test_every_bit_of_probability_is_somewhere(run: Search, case: Case) -> None:
    outcome = run(*case)
    open_parts = (*outcome.bank, *outcome.beam_left, *outcome.unlisted)
    parts = (outcome.covered, *open_parts, outcome.eos, outcome.refuted)
    assert outcome.open_mass == math.fsum(open_parts)
    assert math.fsum(parts) == pytest.approx(1, rel=1e-9)
    assert min(parts) >= 0
    if case.options.distance != "none":
        assert outcome.covered == pytest.approx(outcome.bounds.lower[-1], rel=1e-12, abs=1e-300)
        ball = math.fsum(math.exp(c.log_p) for c in outcome.continuations)
        assert ball == pytest.approx(outcome.bounds.lower[-1], rel=1e-9, abs=1e-15)


@both
@settings(max_examples=60)
@given(case=cases())
def test_frontier_and_results_are_disjoint_and_leave_out_only_what_cannot_come_back(run: Search, case: Case) -> None:
    """No node lies below another; every path of the ball is a result or lies below exactly one node."""
    model, task, options = case
    options = replace(options, max_children=None)
    outcome, tree = run(model, task, options), case.enumerated()
    assert outcome.frontier is not None
    nodes = {node.token_ids for node in nodes_of(outcome.frontier)}
    assert len(nodes) == len(outcome.frontier)
    found = {c.token_ids for c in outcome.continuations}
    assert np.exp(outcome.frontier.log_p).sum() == pytest.approx(outcome.open_mass, rel=1e-9, abs=1e-12)
    for node in nodes:
        assert not any(node[:depth] in nodes for depth in range(len(node)))
    budget = math.inf if options.distance == "none" else options.edit_budget
    for path in tree.finished:
        above = sum(path[:depth] in nodes for depth in range(1, len(path)))
        is_in_ball = measure_of(options)(path, task.suffix_ids) <= budget
        if is_in_ball:
            assert above + (path in found) == 1
        else:
            assert path not in found


@both
@settings(max_examples=40)
@given(case=cases())
def test_refuted_mass_has_no_completion_in_the_ball(run: Search, case: Case) -> None:
    """Enumerate: the exact rule refutes a partial path exactly when all its completions are too far."""
    model, task, options = case
    assume(options.distance != "none")
    options = replace(options, beam_width=400, negligible=0.0, threshold=None, viability="exact", max_children=None)
    outcome, tree = run(model, task, options), case.enumerated()
    refuted = 0.0
    everything = {**tree.partial, **tree.finished}
    for path, probability in everything.items():
        if path and _is_first_refuted(path, task, options, model.vocab_size):
            refuted += probability
    assert outcome.refuted == pytest.approx(refuted, rel=1e-9, abs=1e-12)
    assert outcome.eos <= tree.ended + TINY


def _is_first_refuted(path: tuple[int, ...], task: SearchTask, options: SearchOptions, vocabulary: int) -> bool:
    def nearest(part: tuple[int, ...]) -> int:
        return nearest_completion(part, task.suffix_ids, vocabulary=vocabulary, distance=options.distance)

    return nearest(path) > options.edit_budget >= nearest(path[:-1])


@both
@settings(max_examples=30)
@given(case=cases(), data=st.data())
def test_one_path_has_one_probability_in_every_variant(run: Search, case: Case, data: st.DataObject) -> None:
    model, task, options = case
    other = replace(data.draw(all_options()), policy=options.policy, max_children=options.max_children)
    left, right = (
        {c.token_ids: c.log_p for c in run(model, task, variant).continuations} for variant in (options, other)
    )
    for path in left.keys() & right.keys():
        assert left[path] == pytest.approx(right[path], rel=1e-12, abs=1e-14)


@both
@settings(max_examples=30)
@given(case=cases(), keep=st.integers(0, 4))
def test_keeping_fewer_continuations_changes_nothing_else(run: Search, case: Case, keep: int) -> None:
    model, task, options = case
    some, everything = run(model, task, replace(options, keep=keep)), run(model, task, options)
    assert some.continuations == everything.continuations[:keep]
    assert replace(some, continuations=(), frontier=None) == replace(everything, continuations=(), frontier=None)
