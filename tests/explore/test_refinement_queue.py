"""The queue of refinement against a brute-force ranking that knows what is in memory."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from byrote.explore import refinement as refinement_queue
from byrote.explore.refinement import RefineQueue
from byrote.explore.tree import ABSENT, Tree
from tests.explore.estimator_cases import random_case

Table = NDArray[np.float64]


def lineage(tree: Tree, node: int) -> list[int]:
    """The node's ancestors, the root left out."""
    above = []
    while (node := int(tree.parents[node])) > 0:
        above.append(node)
    return above


def missing(tree: Tree, node: int) -> int:
    return sum(tree.entries[above] == ABSENT for above in lineage(tree, node))


def rank(tree: Tree, node: int, gains: Table, steps: Table) -> float:
    depth = int(tree.depths[node])
    gain = gains[depth, tree.ball.budget - tree.least[node]]
    return float(tree.log_p[node] + gain - math.log(steps[depth] + missing(tree, node)))


def rankings(tree: Tree) -> tuple[list[Table], list[Table]]:
    depths, left = np.arange(tree.ball.length + 1), np.arange(tree.ball.budget + 1)
    gains = [-0.3 * depths[:, None] + 0.0 * left, 0.0 * depths[:, None] - 0.7 * left]
    return gains, [np.maximum(1.0, tree.ball.length - depths), np.ones(len(depths))]


def textbook_choice(tree: Tree, count: int, affordable: int) -> list[int]:
    """The best of each turn, among the first `count` that pay at the start and of those that still do."""
    gains, steps = rankings(tree)
    nodes = np.flatnonzero(tree.is_open[: tree.size]).tolist()

    def pays(node: int, turn: int) -> bool:
        return bool(steps[turn][tree.depths[node]] + missing(tree, node) <= affordable)

    offers = []
    for turn in (0, 1):
        paying = [node for node in nodes if pays(node, turn)]
        paying.sort(key=lambda node: (-rank(tree, node, gains[turn], steps[turn]), node))
        offers.append(paying[:count])
    chosen: list[int] = []
    turns, refusals = itertools.cycle((0, 1)), 0
    while len(chosen) < count and refusals < 2:
        turn = next(turns)
        best = next((node for node in offers[turn] if node not in chosen and pays(node, turn)), None)
        refusals = refusals + 1 if best is None else 0
        if best is not None:
            chosen.append(best)
            affordable -= 1 + missing(tree, best)
    assert affordable >= 0
    return chosen


@pytest.fixture(params=[1, 4, 256])
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement_queue, "SHORT", request.param)


@pytest.mark.usefixtures("short")
@settings(max_examples=40)
@given(seed=st.integers(0, 5000), data=st.data(), is_in_memory=st.booleans())
def test_every_choice_is_the_best_that_pays(seed: int, data: st.DataObject, is_in_memory: bool) -> None:
    """Whatever was evaluated and opened meanwhile."""
    tree = random_case(seed).pool().tree
    assume(tree.is_open.sum() >= 3)
    tree.entries[: tree.beams] = 0 if is_in_memory else ABSENT
    tree.entries[0] = 0
    queue = RefineQueue(tree, *rankings(tree), is_in_memory=is_in_memory)
    while tree.is_open[: tree.size].any():
        count, affordable = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
        chosen = queue.choose(itertools.cycle((0, 1)), count=count, affordable=affordable)
        assert chosen.tolist() == textbook_choice(tree, count, affordable)
        if len(chosen) == 0:
            break
        chosen = chosen[: data.draw(st.integers(1, len(chosen)))]  # the evaluations may run out
        tree.is_open[chosen] = False
        for node in chosen.tolist():
            tree.entries[[node, *lineage(tree, node)]] = 0
        if data.draw(st.booleans()):
            parents = chosen[tree.depths[chosen] + 1 < tree.ball.length]
            log_p, least = tree.log_p[parents] - 1.0, tree.least[parents]
            queue.add(tree.add(parents, np.zeros_like(parents), log_p=log_p, least=least, is_open=True))
        queue.refresh()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("seed", range(5))
def test_everything_comes_out_once_if_there_is_enough_to_spend(seed: int) -> None:
    tree = random_case(seed).pool().tree
    queue = RefineQueue(tree, *rankings(tree), is_in_memory=True)
    tree.entries[: tree.beams] = 0
    expected = np.flatnonzero(tree.is_open[: tree.size]).tolist()
    popped: list[int] = []
    while len(chosen := queue.choose(itertools.cycle((0, 1, 1)), count=3, affordable=10_000)):
        popped += chosen.tolist()
        tree.is_open[chosen] = False
        queue.refresh()
    assert sorted(popped) == expected
