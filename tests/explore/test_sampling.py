"""Exploring trees on a session: answers, costs and company; dividing tickets; sampling against enumeration."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rote.errors import ConfigError, WindowError
from rote.explore import tree as rollout_tree
from rote.explore.open_mass import Ball
from rote.explore.sampling import Rolled, Starts, Tickets, roll, unit_line
from rote.explore.tree import ENTRIES, FEW_WINDOWS, MEMORY_SHARE, MOST_WINDOWS, Explorer
from rote.explore.trie import Answer, Exploration, ExploreTask, Path, Request
from rote.models.table import TableModel
from rote.policy import Policy, keep
from rote.search.base import Limits
from tests.oracle import enumerate_tree

POLICY = Policy(1.0, 3)
LIMITS = Limits(4, 6)
PREFIX = (1, 2, 0)


def ask(requests: Sequence[Request]) -> Exploration[list[Answer]]:
    answers = []
    for request in requests:
        answers.append((yield request))
    return answers


def explored(model: TableModel, exploration: Exploration[Any], *, prefix: Path = PREFIX, **memory: int) -> Any:
    explorer = Explorer(model, POLICY, slots=1, limits=LIMITS, **memory)
    ((_, result),) = explorer.run([ExploreTask(0, prefix, exploration)])
    return result


def distinct_nodes(paths: Sequence[Path]) -> int:
    """The naive recount: every beginning of every path, once."""
    return len({path[:depth] for path in paths for depth in range(1, len(path) + 1)})


paths = st.lists(st.integers(0, 3), min_size=0, max_size=5).map(tuple)
requests = st.lists(st.lists(paths, min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=60)
@given(asked=requests, seed=st.integers(0, 1000))
def test_answers_are_the_policys_next_tokens_and_every_node_costs_once(asked: list[list[Path]], seed: int) -> None:
    model = TableModel.random(seed, vocab_size=4)
    answers = explored(model, ask([Request(paths) for paths in asked]))
    for paths, answer in zip(asked, answers, strict=True):
        assert answer.token_ids.shape == (len(paths), 3)
        for row, path in enumerate(paths):
            expected = keep(model.next_logits([[*PREFIX, *path]]), POLICY)
            assert answer.token_ids[row].tolist() == expected.token_ids[0].tolist()
            assert answer.log_probs[row] == pytest.approx(expected.log_probs[0].numpy())
    everything = [path for paths in asked for path in paths]
    # A node that was first needed as an ancestor and later for itself is evaluated again; nothing else is.
    seen: set[Path] = set()
    again = 0
    asked_for: set[Path] = set()
    for paths in asked:
        again += len({path for path in paths if path and path in seen and path not in asked_for})
        asked_for |= set(paths)
        seen |= {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    assert sum(answer.token_evals for answer in answers) == len(PREFIX) + distinct_nodes(everything) + again


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_forgetting_changes_the_cost_but_not_the_answers(seed: int) -> None:
    """More distinct nodes than the memory holds: old ones are evaluated again when they are needed again."""
    generator = np.random.default_rng(seed)
    model = TableModel.random(seed, vocab_size=8)
    asked = [
        Request([tuple(path) for path in generator.integers(0, 8, (40, int(generator.integers(1, 6)))).tolist()])
        for _ in range(8)
    ]
    answers = explored(model, ask(asked), entries=0)
    for request, answer in zip(asked, answers, strict=True):
        expected = keep(model.next_logits([[*PREFIX, *path] for path in request.paths]), POLICY)
        assert (answer.token_ids == expected.token_ids.numpy()).all()
        assert np.allclose(answer.log_probs, expected.log_probs.numpy())
    everything = [path for request in asked for path in request.paths]
    assert sum(answer.token_evals for answer in answers) >= len(PREFIX) + distinct_nodes(everything)


@settings(max_examples=60)
@given(asked=st.lists(paths, min_size=1, max_size=8), most=st.integers(0, 30))
def test_a_budget_buys_leading_paths_and_is_never_exceeded(asked: list[Path], most: int) -> None:
    model = TableModel.random(3, vocab_size=4)
    (answer,) = explored(model, ask([Request(asked, most)]))
    bought = len(answer.token_ids)
    assert answer.token_evals <= most
    affordable = [len(PREFIX) + distinct_nodes(asked[: count + 1]) <= most for count in range(len(asked))]
    assert bought == sum(affordable)
    assert answer.token_evals == (len(PREFIX) + distinct_nodes(asked[:bought]) if bought else 0)


def test_a_window_that_moves_to_another_slot_takes_its_newest_node_along() -> None:
    model = TableModel.random(5, vocab_size=4)
    grown = [(0, 1), (0, 1, 2), (0, 1, 2, 3)]
    tasks = [
        ExploreTask(0, (3,), ask([Request([(2,)])])),  # ends first, in slot 0
        ExploreTask(1, PREFIX, ask([Request([path]) for path in grown])),
    ]
    found = dict(Explorer(model, POLICY, slots=2, limits=LIMITS).run(tasks))
    for path, answer in zip(grown, found[1], strict=True):
        expected = keep(model.next_logits([[*PREFIX, *path]]), POLICY)
        assert answer.token_ids[0].tolist() == expected.token_ids[0].tolist()
        assert answer.log_probs[0] == pytest.approx(expected.log_probs[0].numpy())


def test_results_and_costs_do_not_depend_on_slots_or_company() -> None:
    model = TableModel.random(5, vocab_size=4, eos_ids=frozenset({3}))

    def tasks(keys: Sequence[int]) -> list[ExploreTask[Rolled]]:
        return [
            ExploreTask(key, (1,) * (1 + key % 3), _sampling(model, (0, 1, 2, key % 3), seed=key, samples=50))
            for key in keys
        ]

    alone = {}
    for key in range(9):
        explorer = Explorer(model, POLICY, slots=1, limits=LIMITS)
        alone |= dict(explorer.run(tasks([key])))
    for slots, order in ((1, range(9)), (3, range(8, -1, -1)), (20, range(9))):
        together = dict(Explorer(model, POLICY, slots=slots, limits=LIMITS).run(tasks(list(order))))
        assert together.keys() == alone.keys()
        for key, rolled in together.items():
            assert (rolled.hits == alone[key].hits).all()
            assert (rolled.shares == alone[key].shares).all()
            assert rolled.token_evals == alone[key].token_evals


def _sampling(model: TableModel, suffix: Path, *, seed: int, samples: int, **how: bool) -> Exploration[Rolled]:
    ball = Ball(suffix, distance="levenshtein", budget=1, eos_ids=model.eos_ids)
    starts = Starts([()], ball.root_state()[None])
    return roll(ball, starts, Tickets.plain(4 * samples), np.random.default_rng(seed), **how)


def rolled_groups(*, is_stratified: bool, stops_when_lost: bool = True) -> tuple[NDArray[np.float64], float, Rolled]:
    """400 groups of 25 tickets: the groups' shares of hits, the truth by enumeration, and everything rolled."""
    model = TableModel.random(11, vocab_size=4, spread=1.5, eos_ids=frozenset({3}))
    suffix = (0, 1, 2, 0)
    ball = Ball(suffix, distance="levenshtein", budget=2, eos_ids=model.eos_ids)
    truth = enumerate_tree(model, PREFIX, 4, POLICY).mass_within(suffix, 2, "levenshtein")
    generator = np.random.default_rng(0)
    strata = [Tickets.stratified(25, np.ones(1), generator) for _ in range(400)]
    tickets = Tickets(*map(np.concatenate, zip(*strata, strict=True))) if is_stratified else Tickets.plain(10_000)
    starts = Starts([()], ball.root_state()[None])
    rolled = explored(model, roll(ball, starts, tickets, generator, stops_when_lost=stops_when_lost))
    return rolled.hits.reshape(400, 25).mean(1), truth, rolled


@pytest.mark.parametrize("is_stratified", [False, True])
@pytest.mark.parametrize("stops_when_lost", [False, True])
def test_hits_are_unbiased_however_tickets_move(is_stratified: bool, stops_when_lost: bool) -> None:
    """Means of 400 groups of 25 tickets against enumeration. |z| ≤ 4.5: a false alarm once in 75,000 runs a case."""
    shares, truth, rolled = rolled_groups(is_stratified=is_stratified, stops_when_lost=stops_when_lost)
    assert 0.02 < truth < 0.98
    exact = rolled.shares.reshape(400, 25).mean(1)
    for values in (shares, exact):
        assert abs(values.mean() - truth) <= 4.5 * values.std() / math.sqrt(400)
    assert exact.var() < shares.var()
    plain = truth * (1 - truth) / 25
    if is_stratified:
        assert shares.var() < 0.8 * plain
    else:
        assert shares.var() == pytest.approx(plain, rel=0.4)  # binomial: 6 standard errors


def test_stratified_tickets_are_independent() -> None:
    """Hits of two tickets of a group are uncorrelated over 400 groups: the largest |z| of at most 300 pairs is below
    5.5 (a false alarm once in 90,000 runs)."""
    _, _, rolled = rolled_groups(is_stratified=True)
    groups = rolled.hits.reshape(400, 25).astype(np.float64)
    varying = groups[:, groups.std(0) > 0.1]
    standardised = (varying - varying.mean(0)) / varying.std(0)
    correlations = standardised.T @ standardised / 400
    others = correlations[np.triu_indices(varying.shape[1], 1)]
    assert len(others) >= 10
    assert np.abs(others).max() * math.sqrt(400) < 5.5


def test_sampling_costs_what_a_naive_recount_says() -> None:
    model = TableModel.random(8, vocab_size=4)
    visited: list[Path] = []

    def watched(exploration: Exploration[Rolled]) -> Exploration[Rolled]:
        request = next(exploration)
        try:
            while True:
                visited.extend(request.paths)
                request = exploration.send((yield request))
        except StopIteration as end:
            rolled: Rolled = end.value
            return rolled

    stopping = explored(model, watched(_sampling(model, (0, 1, 2, 0), seed=1, samples=30)))
    assert stopping.token_evals == len(PREFIX) + len({path for path in visited if path})
    assert len(visited) == len(set(visited)), "samples at the same node share its evaluation"
    plain = explored(model, _sampling(model, (0, 1, 2, 0), seed=1, samples=30, stops_when_lost=False))
    assert stopping.token_evals < plain.token_evals <= len(PREFIX) + 3 * 120


weights = st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda values: sum(values) > 0.01)


@given(count=st.integers(1, 60), weights=weights, seed=st.integers(0, 1000))
def test_strata_follow_the_masses_and_cover_each_line_once(count: int, weights: list[float], seed: int) -> None:
    mass = np.array(weights)
    starts, low, high = Tickets.stratified(count, mass, np.random.default_rng(seed))
    assert (mass[starts] > 0).all()
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    expected = count * mass / mass.sum()
    found = np.bincount(starts, minlength=len(mass))
    assert (np.abs(found - expected) < 2).all(), "only the two parts at a mass's ends can go elsewhere"
    # On the line of all masses, each ticket's part lies within its own stratum.
    edges = unit_line(mass)
    lengths = np.diff(edges)[starts]
    order = np.arange(count)
    assert (edges[starts] + low * lengths >= order / count - 1e-9).all()
    assert (edges[starts] + high * lengths <= (order + 1) / count + 1e-9).all()


def test_too_long_windows_and_no_slots_are_refused() -> None:
    model = TableModel.random(0, vocab_size=4)
    with pytest.raises(ConfigError, match="at least one window"):
        Explorer(model, POLICY, slots=0, limits=LIMITS)
    model.max_positions = 5
    with pytest.raises(WindowError, match="at most 5"):
        Explorer(model, POLICY, slots=1, limits=LIMITS)


@settings(max_examples=60)
@given(evaluations=st.integers(0, 10**7), megabytes=st.integers(0, 10**6), device=st.sampled_from(["cpu", "cuda"]))
def test_room_for_every_evaluation_where_memory_allows(evaluations: int, megabytes: int, device: str) -> None:
    model = SimpleNamespace(device=SimpleNamespace(type=device), tree_bytes_per_entry=lambda: 4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout_tree, "free_memory", lambda device: megabytes * 10**6)
        room = rollout_tree.choose_room(cast(Any, model), LIMITS, evaluations=evaluations)
    most = (MOST_WINDOWS if device == "cuda" else FEW_WINDOWS, max(ENTRIES, evaluations))
    assert (1, ENTRIES) <= room <= most
    assert room.entries <= most[1]
    taken = room.slots * (room.entries + 2 * sum(LIMITS)) * 4096
    assert taken <= megabytes * 10**6 * MEMORY_SHARE or room == (1, ENTRIES)
    if room.entries < most[1]:  # memory is why: eight windows that remember one more would not fit
        assert FEW_WINDOWS * (room.entries + 1 + 2 * sum(LIMITS)) * 4096 > megabytes * 10**6 * MEMORY_SHARE - 4096 * 8


def test_more_windows_than_memory_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="lower --slots"):
        Explorer(TableModel.random(1, vocab_size=4), POLICY, slots=10**9, limits=LIMITS)
