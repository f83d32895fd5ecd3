"""Exploring trees on a session: answers, costs, budgets, memory and company."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError, WindowError
from byrote.explore import explorer as exploring
from byrote.explore.ball import ENDED, Ball
from byrote.explore.base import Exploration, ExploreTask, NodeAnswer
from byrote.explore.explorer import FEW_WINDOWS, LANES, MEMORY_SHARE, MOST_WINDOWS, Explorer
from byrote.explore.sampling import Sampled, Sampler, Samples
from byrote.explore.tree import Tree
from byrote.policy import Policy, keep
from byrote.search.base import Limits
from tests.explore.paths import Path, PathTree, ask
from tests.oracle import nearest_completion
from tests.table import TableModel

POLICY = Policy(1.0, 3)
LIMITS = Limits(4, 6)
PREFIX = (1, 2, 0)


def explored(model: TableModel, exploration: Exploration[Any], *, prefix: Path = PREFIX, **memory: int) -> Any:
    explorer = Explorer(model, POLICY, slots=1, limits=LIMITS, **memory)
    ((_, result),) = explorer.run([ExploreTask(0, prefix, exploration)])
    return result


def distinct_nodes(paths: Sequence[Path]) -> int:
    """The naive recount: every beginning of every path, once."""
    return len({path[:depth] for path in paths for depth in range(1, len(path) + 1)})


def assert_next_tokens(model: TableModel, paths: Sequence[Path], answer: NodeAnswer) -> None:
    assert answer.token_ids.shape == answer.log_probs.shape == answer.least.shape == (len(paths), 3)
    for row, path in enumerate(paths):
        expected = keep(model.next_logits([[*PREFIX, *path]]), POLICY)
        assert answer.token_ids[row].tolist() == expected.token_ids[0].tolist()
        assert answer.log_probs[row] == pytest.approx(expected.log_probs[0].numpy())


paths = st.lists(st.integers(0, 3), min_size=0, max_size=5).map(tuple)
requests = st.lists(st.lists(paths, min_size=1, max_size=6, unique=True), min_size=1, max_size=5)


@settings(max_examples=60)
@given(asked=requests, seed=st.integers(0, 1000))
def test_answers_are_the_policys_next_tokens_and_memory_is_paid_once(asked: list[list[Path]], seed: int) -> None:
    model = TableModel.random(seed, vocab_size=4)
    answers = explored(model, ask(*asked))
    in_memory: set[Path] = set()
    is_prefilled = False
    for paths, answer in zip(asked, answers, strict=True):
        assert_next_tokens(model, paths, answer)
        needed = {path[:depth] for path in paths for depth in range(1, len(path))} - in_memory
        # What is asked for is evaluated, in memory or not; the prefix when it is asked for or not there yet.
        expected = len(needed | set(paths) - {()}) + len(PREFIX) * (not is_prefilled or () in paths)
        assert answer.token_evals == expected
        in_memory |= needed | set(paths)
        is_prefilled = True


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    asked=st.lists(paths, min_size=1, max_size=6, unique=True),
    distance=st.sampled_from(["levenshtein", "hamming"]),
    budget=st.integers(0, 3),
)
def test_least_distances_of_children_are_those_of_enumeration(
    seed: int, asked: list[Path], distance: Any, budget: int
) -> None:
    model = TableModel.random(seed, vocab_size=4, eos_ids=frozenset({3}))
    target = (0, 2, 1, 0, 2)
    tree = Tree(Ball(target, distance=distance, budget=budget, eos_ids=model.eos_ids))
    asked = [path for path in asked if len(path) < len(target)]
    (answer,) = explored(model, PathTree(tree=tree).ask([(asked, None)]))
    for row, path in enumerate(asked):
        for token, least in zip(answer.token_ids[row].tolist(), answer.least[row].tolist(), strict=True):
            if token == 3 and len(path) + 1 < len(target):
                assert least == ENDED
                continue
            truth = nearest_completion((*path, token), target, vocabulary=4, distance=distance)
            assert least == truth or (least > budget and truth > budget)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_forgetting_changes_the_cost_but_not_the_answers(seed: int) -> None:
    """More distinct nodes than the memory holds: old ones are evaluated again when they are needed again."""
    generator = np.random.default_rng(seed)
    model = TableModel.random(seed, vocab_size=8)
    asked = []
    for _ in range(8):
        drawn = generator.integers(0, 8, (60, int(generator.integers(1, 6)))).tolist()
        asked.append(sorted({tuple(path) for path in drawn}))
    everything = [path for paths in asked for path in paths]
    assume(distinct_nodes(everything) > 2 * sum(LIMITS) + exploring.LANES)  # else nothing has to be forgotten
    answers = explored(model, ask(*asked), entries=0)
    for paths, answer in zip(asked, answers, strict=True):
        assert_next_tokens(model, paths, answer)
    assert sum(answer.token_evals for answer in answers) > len(PREFIX) + distinct_nodes(everything)


@settings(max_examples=60)
@given(asked=st.lists(paths, min_size=1, max_size=8, unique=True), most=st.integers(0, 30))
def test_a_budget_buys_leading_nodes_and_is_never_exceeded(asked: list[Path], most: int) -> None:
    model = TableModel.random(3, vocab_size=4)
    (answer,) = explored(model, PathTree().ask([(asked, most)]))
    bought = len(answer.token_ids)
    affordable = [len(PREFIX) + distinct_nodes(asked[: count + 1]) <= most for count in range(len(asked))]
    assert bought == sum(affordable)
    assert answer.token_evals == (len(PREFIX) + distinct_nodes(asked[:bought]) if bought else 0)


@settings(max_examples=30)
@given(asked=requests, most=st.integers(1, 40), entries=st.sampled_from([0, 500]))
def test_budgets_hold_when_memory_is_short(asked: list[list[Path]], most: int, entries: int) -> None:
    model = TableModel.random(3, vocab_size=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exploring, "LANES", 3)
        answers = explored(model, PathTree().ask([(paths, most) for paths in asked]), entries=entries)
    for paths, answer in zip(asked, answers, strict=True):
        assert answer.token_evals <= most
        if len(answer.token_ids):
            assert_next_tokens(model, paths[: len(answer.token_ids)], answer)


def test_results_and_costs_do_not_depend_on_slots_or_company() -> None:
    model = TableModel.random(5, vocab_size=4, eos_ids=frozenset({3}))

    def sampling(key: int) -> Exploration[Sampled]:
        ball = Ball((0, 1, 2, key % 3), distance="levenshtein", budget=1, eos_ids=model.eos_ids)
        return Sampler(Tree(ball)).follow(Samples.plain(200), np.random.default_rng(key))

    def tasks(keys: Sequence[int]) -> list[ExploreTask[Sampled]]:
        return [ExploreTask(key, (1,) * (1 + key % 3), sampling(key)) for key in keys]

    alone = {}
    for key in range(9):
        explorer = Explorer(model, POLICY, slots=1, limits=LIMITS)
        alone |= dict(explorer.run(tasks([key])))
    for slots, order in ((1, range(9)), (3, range(8, -1, -1)), (20, range(9))):
        together = dict(Explorer(model, POLICY, slots=slots, limits=LIMITS).run(tasks(list(order))))
        assert together.keys() == alone.keys()
        for key, sampled in together.items():
            assert (sampled.hits == alone[key].hits).all()
            assert (sampled.shares == alone[key].shares).all()
            assert sampled.token_evals == alone[key].token_evals


def test_windows_of_different_lengths_share_a_forward() -> None:
    model = TableModel.random(5, vocab_size=4)
    asked = [[(0,), (1, 2)], [(2, 1, 0)], [()]]
    tasks = [ExploreTask(key, PREFIX, ask(paths, length=3 + key)) for key, paths in enumerate(asked)]
    explorer = Explorer(model, POLICY, slots=3, limits=LIMITS)
    for key, (answer,) in explorer.run(tasks):
        assert_next_tokens(model, asked[key], answer)
    assert explorer.forwards == 1


def test_too_long_windows_are_refused() -> None:
    model = TableModel.random(0, vocab_size=4)
    model.max_positions = 5
    with pytest.raises(WindowError, match="at most 5"):
        Explorer(model, POLICY, slots=1, limits=LIMITS)


@settings(max_examples=60)
@given(evaluations=st.integers(0, 10**7), megabytes=st.integers(0, 10**6), device=st.sampled_from(["cpu", "cuda"]))
def test_capacity_for_every_evaluation_where_memory_allows(evaluations: int, megabytes: int, device: str) -> None:
    model = SimpleNamespace(device=SimpleNamespace(type=device), tree_bytes_per_entry=lambda: 4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exploring, "free_memory", lambda device: megabytes * 10**6)
        capacity = exploring.choose_capacity(cast(Any, model), LIMITS, evaluations=evaluations)
    most = (MOST_WINDOWS if device == "cuda" else FEW_WINDOWS, max(LANES, evaluations))
    assert (1, LANES) <= capacity <= most
    assert capacity.entries <= most[1]
    taken = capacity.slots * (capacity.entries + 2 * sum(LIMITS)) * 4096
    assert taken <= megabytes * 10**6 * MEMORY_SHARE or capacity == (1, LANES)
    if capacity.entries < most[1]:  # memory is why: eight windows that remember one more would not fit
        assert (
            FEW_WINDOWS * (capacity.entries + 1 + 2 * sum(LIMITS)) * 4096 > megabytes * 10**6 * MEMORY_SHARE - 4096 * 8
        )


def test_more_windows_than_memory_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="lower slots"):
        Explorer(TableModel.random(1, vocab_size=4), POLICY, slots=10**9, limits=LIMITS)
