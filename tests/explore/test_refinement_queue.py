"""The queue of refinement against a brute-force ranking that knows what is in memory."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rote.explore.open_mass import OpenMass
from rote.explore.refinement_queue import RefineQueue
from tests.explore.estimator_cases import random_case

Path = tuple[int, ...]


def prefixes(path: Path) -> set[Path]:
    return {path[:depth] for depth in range(1, len(path) + 1)}


def missing(path: Path, loaded: set[Path]) -> int:
    """Ancestors of a path, itself left out, that are not in memory."""
    return len(prefixes(path[:-1]) - loaded)


def rank(pool: OpenMass, node: int, loaded: set[Path], gains: np.ndarray, steps: np.ndarray) -> float:  # type: ignore[type-arg]
    path = pool.path(node)
    gain = gains[len(path), pool.ball.budget - pool.least[node]]
    return float(pool.log_p[node] + gain - math.log(steps[len(path)] + missing(path, loaded)))


@settings(max_examples=60)
@given(seed=st.integers(0, 5000), data=st.data())
def test_every_pop_is_the_best_affordable_node(seed: int, data: st.DataObject) -> None:
    """Nodes come out by falling worth per evaluation, whatever was evaluated, added or closed meanwhile."""
    case = random_case(seed)
    pool = case.pool()
    assume(len(pool.open_nodes()) >= 3)
    depths, left = np.arange(pool.ball.length + 1), np.arange(pool.ball.budget + 1)
    gains = [-0.3 * depths[:, None] + 0.0 * left, 0.0 * depths[:, None] - 0.7 * left]
    steps = [np.maximum(1.0, pool.ball.length - depths), np.ones(len(depths))]
    queue = RefineQueue(pool, gains, steps)
    inside, loaded = set(pool.open_nodes().tolist()), set[Path]()
    while inside:
        if data.draw(st.integers(0, 4)) == 0:  # somebody else closes a node
            closed = data.draw(st.sampled_from(sorted(inside)))
            pool.is_open[closed] = False
            inside.discard(closed)
            continue
        ranking = data.draw(st.integers(0, 1))
        best = queue.pop(ranking, affordable=1000)
        assert best is not None
        node, cost = best
        ranks = {each: rank(pool, each, loaded, gains[ranking], steps[ranking]) for each in inside}
        assert node in inside
        assert ranks[node] >= max(ranks.values()) - 1e-9
        assert cost == missing(pool.path(node), loaded) + 1
        inside.discard(node)
        pool.is_open[node] = False
        loaded |= prefixes(pool.path(node)[:-1])
        if data.draw(st.booleans()):
            queue.load(pool.path(node))
            loaded |= prefixes(pool.path(node))
    assert queue.pop(0, affordable=1000) is None


@settings(max_examples=40)
@given(seed=st.integers(0, 5000), affordable=st.integers(1, 4))
def test_nothing_dearer_than_what_is_left_comes_out(seed: int, affordable: int) -> None:
    pool = random_case(seed).pool()
    flat = np.zeros(pool.ball.length + 1)
    queue = RefineQueue(pool, [np.zeros((len(flat), pool.ball.budget + 1))], [flat + 1])
    loaded: set[Path] = set()
    popped = set()
    while (best := queue.pop(0, affordable)) is not None:
        node, cost = best
        assert cost == missing(pool.path(node), loaded) + 1 <= affordable
        loaded |= prefixes(pool.path(node)[:-1])
        popped.add(node)
    left = set(pool.open_nodes().tolist()) - popped
    assert all(missing(pool.path(node), loaded) + 1 > affordable for node in left)


def test_nodes_that_are_added_later_take_their_place() -> None:
    pool = next(pool for seed in range(100) if len((pool := random_case(seed).pool()).open_nodes()) >= 4)
    nodes = pool.open_nodes()
    flat = np.zeros(pool.ball.length + 1)
    late, early = nodes[::2], nodes[1::2]
    pool.is_open[late] = False
    queue = RefineQueue(pool, [np.zeros((len(flat), pool.ball.budget + 1))], [flat + 1])
    pool.is_open[late] = True
    queue.add(late)
    popped = []
    while (best := queue.pop(0, 1000)) is not None:
        popped.append(best[0])
    assert sorted(popped) == sorted([*late.tolist(), *early.tolist()])
