"""States that a search hands over: who goes on from the frontier gets the same answers and pays for nothing twice."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, ExploreTask, NodeAnswer
from byrote.explore.explorer import Explorer
from byrote.explore.open_mass import OpenMass
from byrote.explore.refinement import RefineOptions, refine
from byrote.explore.tree import Tree
from byrote.models.base import TreeModel
from byrote.policy import Policy, keep
from byrote.search.base import SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from tests.explore.paths import Path, PathTree
from tests.models.test_hf_architectures import wrap
from tests.models.tiny import VOCABULARY, tiny_model
from tests.search.reference import nodes_of, path_of
from tests.search.test_engine_equals_reference import LIMITS, PLAIN, all_options, models, task_lists
from tests.table import TableModel

KEPT = replace(PLAIN, keep_states=True)


def ask(outcome: SearchOutcome, paths: Sequence[Path]) -> Exploration[NodeAnswer]:
    """Paths of the tree that the search left behind."""
    assert outcome.frontier is not None
    tree = Tree(Ball((0,) * 6, distance="levenshtein", budget=3), replace(outcome.frontier, edits=None))
    (answer,) = yield from PathTree(tree=tree).ask([(paths, None)])
    return answer


def searched(model: TreeModel, tasks: list[SearchTask], options: SearchOptions, slots: int) -> list[SearchOutcome]:
    return sorted(Engine(model, options, slots=slots, limits=LIMITS).run(tasks), key=lambda outcome: outcome.key)


def answers(
    model: TreeModel, policy: Policy, tasks: list[ExploreTask[NodeAnswer]], **memory: int
) -> dict[int, NodeAnswer]:
    return dict(Explorer(model, policy, slots=2, limits=LIMITS, **memory).run(tasks))


def assert_next_tokens(model: TreeModel, prefix: Path, paths: Sequence[Path], answer: NodeAnswer, rtol: float) -> None:
    for row, path in enumerate(paths):
        expected = keep(model.next_logits([[*prefix, *path]]), PLAIN.policy)
        assert answer.token_ids[row].tolist() == expected.token_ids[0].tolist()
        assert np.allclose(answer.log_probs[row], expected.log_probs[0].numpy(), rtol=rtol, atol=rtol)


@settings(max_examples=80, deadline=None)
@given(model=models, options=all_options(), tasks=task_lists(), slots=st.integers(1, 3))
def test_the_search_is_the_same_and_states_are_of_every_beam_above_the_frontier(model, options, tasks, slots) -> None:  # type: ignore[no-untyped-def]
    if options.policy.top_k is not None and options.policy.top_k > model.vocab_size:
        options = replace(options, policy=replace(options.policy, top_k=model.vocab_size))
    plain = searched(model, tasks, replace(options, keep_states=False), slots)
    every = searched(model, tasks, replace(options, keep_states=True), slots)
    for task, before, after in zip(tasks, plain, every, strict=True):
        assert before.states is None
        assert after.states is not None
        assert_same_search(before, after)
        assert_states_of_every_beam(task, after)


def assert_same_search(left: SearchOutcome, right: SearchOutcome) -> None:
    """The same numbers, and the same nodes in the same order: what is sampled depends on it."""
    assert left.bounds == right.bounds
    assert left.token_evals == right.token_evals
    assert left.frontier is not None
    assert right.frontier is not None
    assert nodes_of(left.frontier) == nodes_of(right.frontier)
    for ours, theirs in zip(left.frontier.beams, right.frontier.beams, strict=True):
        assert (ours == theirs).all()


def assert_states_of_every_beam(task: SearchTask, outcome: SearchOutcome) -> None:
    states, frontier = outcome.states, outcome.frontier
    assert states is not None
    assert frontier is not None
    assert all(tensor.shape[:2] == (1, len(states)) for tensors in states.stored.values() for tensor in tensors)
    paths = [path_of(frontier.beams, beam) for beam in range(len(states.entries))]
    assert len(set(paths)) == len(set(states.entries.tolist())) == len(paths)
    assert states.entries[0] == len(task.prefix_ids) - 1
    assert states.entries.max() < len(states)
    assert set(range(task.chain_tokens, len(states))) <= set(states.entries.tolist()), "nothing is stored in vain"
    for path, entry in zip(paths, states.entries.tolist(), strict=True):
        is_on_chain = path == task.suffix_ids[: len(path)]
        assert (entry == len(task.prefix_ids) + len(path) - 1) if is_on_chain else entry >= task.chain_tokens
    above = {node.token_ids[:depth] for node in nodes_of(frontier) for depth in range(len(node.token_ids))}
    assert above <= set(paths)


@settings(max_examples=40, deadline=None)
@given(model=models, tasks=task_lists(), options=st.sampled_from([PLAIN, KEPT]), slots=st.integers(1, 4))
def test_going_on_from_the_frontier_costs_one_evaluation_a_node_with_states(model, tasks, options, slots) -> None:  # type: ignore[no-untyped-def]
    outcomes = searched(model, tasks, options, slots)
    frontiers = [[node.token_ids for node in nodes_of(outcome.frontier)] for outcome in outcomes]
    asked = [
        ExploreTask(task.key, task.prefix_ids, ask(outcome, paths), outcome.states)
        for task, outcome, paths in zip(tasks, outcomes, frontiers, strict=True)
    ]
    found = answers(model, options.policy, asked)
    for task, outcome, paths in zip(tasks, outcomes, frontiers, strict=True):
        answer = found[task.key]
        assert_next_tokens(model, task.prefix_ids, paths, answer, 1e-9)
        everything = len({path[:depth] for path in paths for depth in range(1, len(path) + 1)})
        assert answer.token_evals == (
            bool(paths) * len(task.prefix_ids) + everything if outcome.states is None else len(set(paths))
        )


@settings(max_examples=60, deadline=None)
@given(model=models, options=all_options(), tasks=task_lists())
def test_edits_that_the_search_hands_over_are_those_of_walking_down_its_tree(model, options, tasks) -> None:  # type: ignore[no-untyped-def]
    if options.policy.top_k is not None and options.policy.top_k > model.vocab_size:
        options = replace(options, policy=replace(options.policy, top_k=model.vocab_size))
    for task, outcome in zip(tasks, searched(model, tasks, options, 2), strict=True):
        frontier = outcome.frontier
        assert frontier is not None
        assert (frontier.edits is not None) == options.is_exact
        ball = Ball(task.suffix_ids, distance=options.distance, budget=options.edit_budget)
        handed, walked = Tree(ball, frontier), Tree(ball, replace(frontier, edits=None))
        assert (handed.states[: handed.beams] == walked.states[: walked.beams]).all()
        assert (handed.least[handed.beams :] == walked.least[walked.beams :]).all()


def one_search(model: TreeModel, **changes: Any) -> tuple[SearchTask, SearchOutcome]:
    task = SearchTask(0, (1, 2, 0), (0, 1, 2, 0, 1, 2))
    (outcome,) = searched(model, [task], replace(KEPT, **changes), 1)
    return task, outcome


@pytest.mark.parametrize("seed", range(10))
def test_states_of_beams_that_died_survive_a_move_too(seed: int) -> None:
    """Only the verbatim path lives when its window moves; the dead beams are what refinement goes on from."""
    model = TableModel.random(seed, vocab_size=4, spread=2.0)
    tasks = [SearchTask(place, (place % 4, 1), (3, 1, 2, 0, 1, 2)[: 2 + place % 5]) for place in range(12)]
    options = replace(KEPT, beam_width=2, negligible=0.1)
    for task, outcome in zip(tasks, searched(model, tasks, options, 6), strict=True):
        paths = [node.token_ids for node in nodes_of(outcome.frontier)]
        asked = ExploreTask(task.key, task.prefix_ids, ask(outcome, paths), outcome.states)
        answer = answers(model, options.policy, [asked])[task.key]
        assert_next_tokens(model, task.prefix_ids, paths, answer, 1e-9)


@pytest.mark.parametrize("short", [2, 3, 4])
def test_states_survive_a_move_to_another_slot(short: int) -> None:
    """The window in slot 0 ends first and no other is waiting, so the one in slot 1 moves, with what it has stored."""
    model = TableModel.random(6, vocab_size=6, spread=1.0)
    tasks = [SearchTask(0, (1,), (0, 1, 2, 3)[:short]), SearchTask(1, (2, 0, 1, 3, 4), (0, 1, 2, 0, 1, 2))]
    outcomes = searched(model, tasks, KEPT, 2)
    assert outcomes[1].frontier is not None
    assert outcomes[1].stop_step > short
    paths = [node.token_ids for node in nodes_of(outcomes[1].frontier)]
    answer = answers(
        model, KEPT.policy, [ExploreTask(1, tasks[1].prefix_ids, ask(outcomes[1], paths), outcomes[1].states)]
    )[1]
    assert_next_tokens(model, tasks[1].prefix_ids, paths, answer, 1e-9)


def test_states_that_would_fill_the_memory_are_left_out() -> None:
    model = TableModel.random(2, vocab_size=4)
    task, outcome = one_search(model, beam_width=40, edit_budget=6)
    assert outcome.states is not None
    assert outcome.frontier is not None
    paths = [node.token_ids for node in nodes_of(outcome.frontier)]
    memory = 2 * sum(LIMITS) + 128
    assert len(outcome.states) > memory // 2
    asked = ExploreTask(0, task.prefix_ids, ask(outcome, paths[:5]), outcome.states)
    answer = answers(model, KEPT.policy, [asked], entries=0)[0]
    assert_next_tokens(model, task.prefix_ids, paths[:5], answer, 1e-9)
    everything = {path[:depth] for path in paths[:5] for depth in range(1, len(path) + 1)}
    assert answer.token_evals == len(task.prefix_ids) + len(everything)


def test_the_prefixs_own_answer_is_evaluated_when_it_is_asked_for() -> None:
    model = TableModel.random(2, vocab_size=4)
    task, outcome = one_search(model)
    asked = ExploreTask(0, task.prefix_ids, ask(outcome, [(), (1,)]), outcome.states)
    answer = answers(model, KEPT.policy, [asked])[0]
    assert_next_tokens(model, task.prefix_ids, [(), (1,)], answer, 1e-9)
    assert len(task.prefix_ids) < answer.token_evals <= len(task.prefix_ids) + 1


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2", "gpt_neo"])
@pytest.mark.filterwarnings("ignore:.*recomputed:UserWarning")
def test_states_of_real_models_continue_where_the_search_stood(architecture: str) -> None:
    """Gemma 2 has sliding windows; GPT-Neo cannot search trees and keeps tokens instead."""
    model = wrap(tiny_model(architecture))
    generator = torch.Generator().manual_seed(1)
    tasks = [
        SearchTask(key, tuple(drawn[: 3 + key]), tuple(drawn[6:12]))
        for key, drawn in enumerate(torch.randint(0, VOCABULARY, (3, 12), generator=generator).tolist())
    ]
    outcomes = searched(model, tasks, KEPT, 2)
    asked = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        assert outcome.frontier is not None
        deepest = sorted((node.token_ids for node in nodes_of(outcome.frontier)), key=len)[-6:]
        asked.append((deepest, ExploreTask(task.key, task.prefix_ids, ask(outcome, deepest), outcome.states)))
    found = answers(model, KEPT.policy, [task for _, task in asked])
    for paths, task in asked:
        assert_next_tokens(model, task.prefix_ids, paths, found[task.key], 1e-4)
        assert found[task.key].token_evals == len(paths)


def test_refinement_with_states_expands_a_node_for_every_evaluation() -> None:
    model = TableModel.random(4, vocab_size=8, spread=1.0)
    task, outcome = one_search(model, policy=Policy(1.0, 6))
    expanded = {}
    for has_states in (True, False):
        assert outcome.frontier is not None
        ball = Ball(task.suffix_ids, distance="levenshtein", budget=KEPT.edit_budget, eos_ids=model.eos_ids)
        pool = OpenMass(ball, outcome.frontier, accepted=outcome.bounds.lower)
        options = RefineOptions(token_evals=60, threshold=None, order="both")
        states = outcome.states if has_states else None
        exploration = refine(pool, options, is_in_memory=has_states)
        explorer = Explorer(model, Policy(1.0, 6), slots=1, limits=LIMITS)
        ((_, result),) = explorer.run([ExploreTask(0, task.prefix_ids, exploration, states)])
        expanded[has_states] = result.expanded
        assert result.token_evals <= 60
    assert expanded[True] == 60
    assert expanded[False] < 60
