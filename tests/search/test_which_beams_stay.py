"""Which beams a search keeps, and what it finds for it: width, pin and negligible beams, by brute force."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.search.base import SearchTask
from tests.search.cases import TINY, Case, Search, both, by_engine, cases, measure_of
from tests.search.reference import nodes_of
from tests.search.test_engine_equals_reference import PLAIN
from tests.table import TableModel


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
    assert not any(is_searched(node.token_ids) for node in nodes_of(wide.frontier))
    assert wide.covered + np.exp(wide.frontier.log_p).sum() + wide.eos + wide.refuted == pytest.approx(1, rel=1e-9)


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
