"""The method's invariants, by brute force on table models, for the engine and for the reference."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rote.models.table import TableModel
from rote.search import reference
from rote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from rote.search.engine import Engine
from rote.types import StopReason, Verdict
from tests.oracle import (
    Enumeration,
    enumerate_tree,
    nearest_completion,
    textbook_hamming,
    textbook_levenshtein,
)
from tests.search.test_engine_equals_reference import PLAIN, all_options

TINY = 1e-12


def by_engine(model: TableModel, task: SearchTask, options: SearchOptions) -> SearchOutcome:
    """In company of two other windows, so that nothing depends on being alone."""
    others = [SearchTask(90, (1,), (0, 0, 1)), SearchTask(91, (2, 0), (1,))]
    engine = Engine(model, options, slots=2, limits=Limits(4, 5))
    return next(outcome for outcome in engine.run([others[0], task, others[1]]) if outcome.key == task.key)


both = pytest.mark.parametrize("run", [by_engine, reference.search], ids=["engine", "reference"])
Search = Callable[[TableModel, SearchTask, SearchOptions], SearchOutcome]


class Case(NamedTuple):
    model: TableModel
    task: SearchTask
    options: SearchOptions

    def enumerated(self) -> Enumeration:
        return enumerate_tree(self.model, self.task.prefix_ids, len(self.task.suffix_ids), self.options.policy)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A model of three or four tokens, a window of up to five, any variant of the search."""
    model = TableModel.random(
        draw(st.integers(0, 10_000)),
        vocab_size=draw(st.integers(3, 4)),
        spread=draw(st.sampled_from([0.0, 1.0, 3.0])),
        eos_ids=draw(st.sampled_from([frozenset[int](), frozenset({0}), frozenset({1, 2})])),
    )
    prefix = draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    suffix = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    probs = draw(st.lists(st.floats(0, 1), min_size=len(suffix), max_size=len(suffix)))
    return Case(model, SearchTask(7, tuple(prefix), tuple(suffix), tuple(probs)), draw(all_options()))


def measure_of(options: SearchOptions) -> Callable[[tuple[int, ...], tuple[int, ...]], int]:
    return textbook_hamming if options.distance == "hamming" else textbook_levenshtein


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
    for node in outcome.frontier:
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
    for node in outcome.frontier:
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
    nodes = {node.token_ids for node in outcome.frontier}
    assert len(nodes) == len(outcome.frontier)
    found = {c.token_ids for c in outcome.continuations}
    assert outcome.frontier.mass == pytest.approx(outcome.open_mass, rel=1e-9, abs=1e-12)
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
@settings(max_examples=40)
@given(case=cases())
def test_a_beam_wide_enough_finds_the_whole_truth(run: Search, case: Case) -> None:
    model, task, options = case
    everything = model.vocab_size ** len(task.suffix_ids)
    options = replace(options, beam_width=everything, negligible=0.0, threshold=None, max_children=None)
    outcome, tree = run(model, task, options), case.enumerated()
    for edits, lower in enumerate(outcome.bounds.lower):
        truth = tree.mass_within(task.suffix_ids, edits, options.distance)
        assert lower == pytest.approx(truth, rel=1e-9, abs=1e-15)
    assert outcome.open_mass == 0
    assert outcome.bounds.upper == pytest.approx(outcome.bounds.lower, rel=1e-12)


@both
@settings(max_examples=40)
@given(case=cases())
def test_paths_above_the_survival_floor_survive(run: Search, case: Case) -> None:
    """At most B paths of one depth can weigh more than 1/(B + 1): ranked by mass, none of them is pruned."""
    model, task, options = case
    options = replace(options, rank_by="mass", negligible=0.0, threshold=None, max_children=None)
    outcome, tree = run(model, task, options), case.enumerated()
    found = {c.token_ids for c in outcome.continuations}
    floor = 1 / (options.beam_width + 1) + TINY
    budget = math.inf if options.distance == "none" else options.edit_budget
    for path in tree.finished:
        is_heavy = all(tree.partial[path[:depth]] > floor for depth in range(1, len(path)))
        if is_heavy and measure_of(options)(path, task.suffix_ids) <= budget:
            assert path in found


@both
@settings(max_examples=40)
@given(case=cases())
def test_pinning_keeps_the_lower_bound_at_or_above_the_verbatim_probability(run: Search, case: Case) -> None:
    model, task, options = case
    options = replace(options, pin_verbatim=True, threshold=None, max_children=None)
    outcome, tree = run(model, task, options), case.enumerated()
    verbatim = tree.finished.get(task.suffix_ids, 0.0)
    assert outcome.bounds.lower[0] == pytest.approx(verbatim, rel=1e-9, abs=1e-15)


@both
@settings(max_examples=40)
@given(case=cases(), negligible=st.sampled_from([1e-4, 1e-2, 0.2]))
def test_what_is_negligible_is_banked_and_never_searched(run: Search, case: Case, negligible: float) -> None:
    """With room for every beam, a path is found exactly when nothing on its way is light, the pinned path excepted."""
    model, task, options = case
    options = replace(options, threshold=None, max_children=None, negligible=negligible)
    everything = replace(options, beam_width=model.vocab_size ** len(task.suffix_ids))
    tree, narrow, wide = case.enumerated(), run(model, task, options), run(model, task, everything)

    def is_searched(path: tuple[int, ...]) -> bool:
        is_pinned = options.pin_verbatim and path == task.suffix_ids[: len(path)]
        return tree.partial[path] >= negligible or is_pinned

    budget = math.inf if options.distance == "none" else options.edit_budget
    ball = {path for path in tree.finished if measure_of(options)(path, task.suffix_ids) <= budget}
    reached = {path for path in ball if all(is_searched(path[:depth]) for depth in range(1, len(path)))}
    assert {c.token_ids for c in narrow.continuations} <= reached
    assert {c.token_ids for c in wide.continuations} == reached
    assert wide.frontier is not None
    assert not any(is_searched(node.token_ids) for node in wide.frontier)
    assert wide.covered + wide.frontier.mass + wide.eos + wide.refuted == pytest.approx(1, rel=1e-9)


@both
@settings(max_examples=60)
@given(case=cases(), threshold=st.sampled_from([0.001, 0.02, 0.1, 0.5, 1.0]))
def test_stopping_when_settled_never_changes_the_verdict(run: Search, case: Case, threshold: float) -> None:
    model, task, options = case
    stopping = replace(options, threshold=threshold, stop_rule="mass")
    early, full = run(model, task, stopping), run(model, task, replace(options, threshold=None))
    # Equal bounds up to rounding: leave out cases where τ lies on one of them.
    assume(
        all(
            abs(bound - threshold) > 1e-9
            for bound in (full.bounds.lower[-1], full.bounds.upper[-1], early.bounds.upper[-1])
        )
    )
    assert early.bounds.verdict(threshold) == full.bounds.verdict(threshold)
    assert early.token_evals <= full.token_evals


@both
def test_a_beam_below_the_threshold_goes_on_while_the_upper_bound_may_still_fall_below_it(run: Search) -> None:
    """After one step: beam 0.3, bank 0.3, τ = 0.5. Stopping there would say 'not shown'; the next steps rule it out."""
    impossible = 1e-30
    explicit = {
        (1,): [0.4, 0.3, 0.3 - 1e-9, impossible],
        (1, 1): [impossible, 0.1, impossible, 0.9],
        (1, 1, 3): [impossible, 0.05, impossible, 0.95],
    }
    logits = {history: [math.log(p) for p in row] for history, row in explicit.items()}
    model = TableModel(torch.zeros(1, 4), explicit=logits, eos_ids=frozenset({0}))
    policy = replace(PLAIN.policy, top_k=4)
    options = replace(PLAIN, policy=policy, beam_width=1, edit_budget=1, distance="hamming", threshold=0.5)
    outcome = run(model, SearchTask(7, (1,), (1, 1, 1)), options)
    assert outcome.stop_reason == StopReason.FINISHED
    assert outcome.bounds.verdict(0.5) == Verdict.RULED_OUT
    assert outcome.bounds.upper[-1] == pytest.approx(0.3 + 0.03 + 0.27 * 0.05, rel=1e-6)


@both
@settings(max_examples=60)
@given(case=cases(), threshold=st.sampled_from([0.001, 0.02, 0.1, 0.5, 1.0]))
def test_the_published_stop_rule_loses_no_extractable_window(run: Search, case: Case, threshold: float) -> None:
    model, task, options = case
    stopping = replace(options, threshold=threshold, stop_rule="published")
    early, full = run(model, task, stopping), run(model, task, replace(options, threshold=None))
    if early.stop_reason == StopReason.BELOW_THRESHOLD:
        assert full.bounds.lower[-1] < threshold
        assert early.bounds.verdict(threshold) != Verdict.EXTRACTABLE
    else:
        assert early.bounds == full.bounds


@both
@settings(max_examples=40)
@given(case=cases())
def test_all_final_children_count_not_only_a_beam_of_them(run: Search, case: Case) -> None:
    model, task, options = case
    options = replace(options, threshold=None)
    outcome = run(model, task, options)
    in_ball = [c for c in outcome.continuations if c.distance <= options.edit_budget]
    beam_of_finals = math.fsum(math.exp(c.log_p) for c in in_ball[: options.beam_width])
    assert beam_of_finals <= outcome.bounds.lower[-1] + TINY


@both
def test_a_single_beam_returns_every_child_of_its_last_step(run: Search) -> None:
    model = TableModel.random(0, vocab_size=4, spread=0.0)
    options = replace(PLAIN, policy=replace(PLAIN.policy, top_k=4), beam_width=1, edit_budget=5)
    outcome = run(model, SearchTask(7, (1,), (0, 0, 0)), options)
    assert len(outcome.continuations) == 4
    assert outcome.bounds.lower[-1] == pytest.approx(4 / 4**3)


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


def test_the_pin_rescues_a_window_that_the_beam_loses() -> None:
    """Deterministic: the verbatim path starts as the third-heaviest child and then has probability one."""
    start, sure = [2.0, 1.9, 1.0], [-60.0, -60.0, 60.0]
    explicit = {(0,): start, **{(0, 2, *[2] * depth): sure for depth in range(4)}}
    model = TableModel(torch.zeros(1, 3), explicit=explicit)
    task = SearchTask(7, (0,), (2, 2, 2, 2))
    options = replace(PLAIN, beam_width=2, edit_budget=1)
    lost, pinned = (by_engine(model, task, replace(options, pin_verbatim=pin)) for pin in (False, True))
    verbatim = math.exp(1.0) / sum(math.exp(value) for value in start)
    assert lost.bounds.lower[0] == 0
    assert pinned.bounds.lower[0] == pytest.approx(verbatim)
