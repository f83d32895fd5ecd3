"""Anytime refinement: expand the frontier's best nodes first; lower bounds only rise, the upper bound only falls.

Expanding a node costs one evaluation (and those of ancestors no longer in memory) and moves its mass: to what is
accepted, out of the upper bound, or to its viable children. The bounds are sound after every step, so refinement may
stop anywhere: at a budget, at a gap, or as soon as the verdict at τ is decided.

Which node is best depends on the bound. With m the node's mass, t its depth and q_s the teacher-forced probability of
target token s:

    mass         m                               takes most from the upper bound
    completion   m · Π_{s>t} q_s / (T − t)       adds most to the lower bound: what the tail is worth per evaluation
    both         one by completion, then two by mass, in turn
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rote.errors import ConfigError
from rote.search.promise import FLOOR
from rote.search.rollout_pool import OpenMass
from rote.search.rollout_trie import Exploration, Request
from rote.types import Bounds, Verdict

OrderName = Literal["mass", "completion", "both"]
TURNS: dict[OrderName, tuple[str, ...]] = {
    "mass": ("mass",),
    "completion": ("completion",),
    "both": ("completion", "mass", "mass"),
}
BATCH = 16
"""Nodes expanded between two looks at the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineOptions:
    """When to stop and what to expand first. None switches a stop rule off."""

    token_evals: int
    """Never spend more than this."""
    gap: float | None
    """Stop when upper − lower is at most this."""
    threshold: float | None
    """Stop when the verdict at this τ is decided."""
    order: OrderName
    """What to expand first: `mass` for the upper bound, `completion` for the lower, `both` in turn."""

    def __post_init__(self) -> None:
        if self.token_evals < 0:
            raise ConfigError(f"refine is {self.token_evals}; it must be 0 or more token evaluations.")


@dataclass(frozen=True, slots=True)
class Refined:
    """Bounds after refinement and what they cost."""

    bounds: Bounds
    token_evals: int
    expanded: int
    is_exhausted: bool
    """Nothing is left open: lower and upper bound are the mass itself, up to what the search did not list."""


def refine(
    pool: OpenMass,
    options: RefineOptions,
    *,
    target_probs: Sequence[float] | None = None,
    watch: Callable[[Bounds, int], None] | None = None,
) -> Exploration[Refined]:
    """Expand open nodes of the pool until a stop rule speaks. `watch` sees the bounds and the cost at every step.

    Without `target_probs` every tail is worth the same.
    """
    queues = _make_queues(pool, options.order, target_probs)
    spent, expanded = 0, 0
    bounds = pool.bounds()
    while not _is_done(bounds, options):
        chosen = _choose(queues, min(BATCH, options.token_evals - spent))
        if not chosen:
            break
        answer = yield Request([pool.path(node) for node in chosen], options.token_evals - spent)
        count = len(answer.token_ids)
        if count == 0:
            break
        spent += answer.token_evals
        expanded += count
        new = pool.expand(np.array(chosen[:count]), answer)
        for queue in set(queues):
            queue.add(np.array(chosen[count:], dtype=np.int64))
            queue.add(new)
        bounds = pool.bounds()
        if watch is not None:
            watch(bounds, spent)
    return Refined(bounds, spent, expanded, not pool.is_open[: pool.size].any())


class _Queue:
    """Open nodes, the best first. A node that was expanded meanwhile is passed over."""

    def __init__(self, pool: OpenMass, worth: NDArray[np.float64]) -> None:
        """`worth[t]` is added to the log mass of a node of t tokens."""
        self._pool, self._worth = pool, worth
        self._heap: list[tuple[float, int]] = []
        self.add(pool.open_nodes())

    def add(self, nodes: NDArray[np.int64]) -> None:
        ranks = self._pool.log_p[nodes] + self._worth[self._pool.depths[nodes]]
        for rank, node in zip(ranks.tolist(), nodes.tolist(), strict=True):
            heapq.heappush(self._heap, (-rank, node))

    def pop(self, taken: set[int]) -> int | None:
        while self._heap:
            _, node = heapq.heappop(self._heap)
            if node not in taken and self._pool.is_open[node]:
                return node
        return None


def _make_queues(pool: OpenMass, order: OrderName, target_probs: Sequence[float] | None) -> list[_Queue]:
    length = pool.ball.length
    probabilities = np.ones(length) if target_probs is None else np.asarray(target_probs)
    steps = np.log(np.clip(probabilities, FLOOR, 1.0))
    tails = np.append(np.cumsum(steps[::-1])[::-1], 0.0)  # [T + 1]: log Π_{s>t} q_s
    remaining = np.maximum(1, length - np.arange(length + 1))
    worths = {"completion": tails - np.log(remaining), "mass": np.zeros(length + 1)}
    queues = {name: _Queue(pool, worths[name]) for name in set(TURNS[order])}
    return [queues[name] for name in TURNS[order]]


def _choose(queues: list[_Queue], count: int) -> list[int]:
    """The next nodes, from each queue in turn."""
    taken: set[int] = set()
    chosen: list[int] = []
    while len(chosen) < count:
        node = queues[len(chosen) % len(queues)].pop(taken)
        if node is None:
            break
        taken.add(node)
        chosen.append(node)
    return chosen


def _is_done(bounds: Bounds, options: RefineOptions) -> bool:
    if options.gap is not None and bounds.upper - bounds.lower[-1] <= options.gap:
        return True
    return options.threshold is not None and bounds.verdict(options.threshold) != Verdict.NOT_SHOWN
