"""The engine against the reference search on table models, for every variant and any way of grouping windows."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.policy import Policy
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from tests.search.reference import nodes_of, search
from tests.table import TableModel

LIMITS = Limits(prefix_tokens=6, suffix_tokens=6)
PLAIN = SearchOptions(
    policy=Policy(1.0, 3),
    beam_width=3,
    edit_budget=2,
    distance="levenshtein",
    viability="exact",
    pin_verbatim=False,
    negligible=0.0,
    threshold=None,
    stop_rule="mass",
    rank_by="mass",
    keep=None,
    max_children=None,
    record_frontier=True,
    keep_states=False,
)

models = st.builds(
    TableModel.random,
    st.integers(0, 10_000),
    vocab_size=st.integers(3, 6),
    rows=st.sampled_from([1, 7, 512]),
    spread=st.sampled_from([0.0, 1.0, 3.0, 8.0]),
    eos_ids=st.sampled_from([frozenset[int](), frozenset({0}), frozenset({1, 2})]),
)


@st.composite
def all_options(draw: st.DrawFn) -> SearchOptions:
    """Every variant of the method."""
    options = replace(
        PLAIN,
        policy=Policy(
            draw(st.sampled_from([0.5, 1.0, 2.0])),
            draw(st.sampled_from([None, 1, 2, 3])),
            draw(st.sampled_from([None, 0.5, 0.9, 1.0])),
        ),
        beam_width=draw(st.integers(1, 6)),
        edit_budget=draw(st.integers(0, 4)),
        distance=draw(st.sampled_from(["levenshtein", "hamming", "none"])),
        viability=draw(st.sampled_from(["exact", "published"])),
        pin_verbatim=draw(st.booleans()),
        negligible=draw(st.sampled_from([0.0, 0.0, 1e-3, 0.05])),
        threshold=draw(st.sampled_from([None, 0.001, 0.1, 0.6])),
        stop_rule=draw(st.sampled_from(["mass", "published"])),
        rank_by=draw(st.sampled_from(["mass", "screen_score"])),
        max_children=draw(st.sampled_from([None, 2])),
    )
    return replace(options, policies=draw(policies_inside(options)))


def policies_inside(options: SearchOptions) -> st.SearchStrategy[tuple[Policy, ...]]:
    """Policies that keep a part of what the search lists; none where it keeps a nucleus, or prunes nothing."""
    if options.policy.top_p not in (None, 1.0) or options.distance == "none":
        return st.just(())
    caps = [cap for cap in (options.policy.top_k, options.max_children) if cap is not None]
    widths = list(range(1, min(caps) + 1)) if caps else [None, 1, 2, 4]
    one = st.builds(
        Policy, st.sampled_from([0.3, 1.0, 1.7]), st.sampled_from(widths), st.sampled_from([None, 0.4, 0.95])
    )
    return st.lists(one, max_size=5).map(tuple)


@st.composite
def task_lists(draw: st.DrawFn, vocabulary: int = 3) -> list[SearchTask]:
    count = draw(st.integers(1, 7))
    tasks = []
    for key in range(count):
        prefix = draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=6))
        suffix = draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=6))
        probs = draw(st.lists(st.floats(0, 1), min_size=len(suffix), max_size=len(suffix)))
        tasks.append(SearchTask(key, tuple(prefix), tuple(suffix), tuple(probs)))
    return tasks


def assert_same(left: SearchOutcome, right: SearchOutcome) -> None:
    assert left.stop_reason == right.stop_reason
    assert left.stop_step == right.stop_step
    assert (left.beams, left.token_evals) == (right.beams, right.token_evals)
    close = {"rel": 1e-9, "abs": 1e-14}
    assert left.bounds.lower == pytest.approx(right.bounds.lower, **close)
    assert left.bounds.upper == pytest.approx(right.bounds.upper, **close)
    assert len(left.policy_bounds) == len(right.policy_bounds)
    for ours, theirs in zip(left.policy_bounds, right.policy_bounds, strict=True):
        assert ours.lower == pytest.approx(theirs.lower, **close)
        assert ours.upper == pytest.approx(theirs.upper, **close)
    for name in ("covered", "bank", "beam_left", "unlisted", "eos", "refuted"):
        assert getattr(left, name) == pytest.approx(getattr(right, name), **close), name
    found = {c.token_ids: (c.log_p, c.distance) for c in left.continuations}
    expected = {c.token_ids: (c.log_p, c.distance) for c in right.continuations}
    assert found.keys() == expected.keys()
    for path, (log_p, distance) in found.items():
        assert log_p == pytest.approx(expected[path][0], rel=1e-12)
        assert distance == expected[path][1]
    assert left.frontier is not None
    assert right.frontier is not None
    assert {n.token_ids for n in nodes_of(left.frontier)} == {n.token_ids for n in nodes_of(right.frontier)}


@settings(max_examples=150, deadline=None)
@given(
    model=models,
    options=all_options(),
    tasks=task_lists(),
    slots=st.integers(1, 5),
    data=st.data(),
)
def test_engine_equals_reference_for_any_grouping(model, options, tasks, slots, data) -> None:  # type: ignore[no-untyped-def]
    if options.policy.top_k is not None and options.policy.top_k > model.vocab_size:
        options = replace(options, policy=replace(options.policy, top_k=model.vocab_size))
    order = data.draw(st.permutations(tasks))
    outcomes = {o.key: o for o in Engine(model, options, slots=slots, limits=LIMITS).run(order)}
    assert sorted(outcomes) == [task.key for task in tasks]
    for task in tasks:
        assert_same(outcomes[task.key], search(model, task, options))
        assert (outcomes[task.key].states is not None) == options.keep_states


@settings(max_examples=60, deadline=None)
@given(model=models, options=all_options(), tasks=task_lists())
def test_every_bit_of_probability_is_accounted_for(model, options, tasks) -> None:  # type: ignore[no-untyped-def]
    if options.policy.top_k is not None and options.policy.top_k > model.vocab_size:
        options = replace(options, policy=replace(options.policy, top_k=model.vocab_size))
    for outcome in Engine(model, options, slots=2, limits=LIMITS).run(tasks):
        total = outcome.covered + outcome.open_mass + outcome.eos + outcome.refuted
        assert math.isclose(total, 1.0, rel_tol=1e-9)
        assert outcome.frontier is not None
        if options.max_children is None:
            assert math.isclose(np.exp(outcome.frontier.log_p).sum(), outcome.open_mass, rel_tol=1e-9, abs_tol=1e-12)
