"""Anytime refinement: expand the frontier's best nodes first; lower bounds only rise, the upper bound only falls.

Expanding a node costs one evaluation (and those of ancestors no longer in memory) and moves its mass: to what is
accepted, out of the upper bound, or to its viable children. The bounds are sound after every step, so refinement may
stop anywhere: at a budget, at a gap, or as soon as the verdict at τ is decided.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rote.errors import ConfigError
from rote.search.rollout_pool import OpenMass
from rote.search.rollout_trie import Exploration, Request
from rote.types import Bounds, Verdict

OrderName = Literal["mass", "promise"]
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
    """`mass`: the heaviest first. `promise`: the heaviest after weighing by the chance to finish in budget."""

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
    chances: NDArray[np.float64] | None = None,
    watch: Callable[[Bounds, int], None] | None = None,
) -> Exploration[Refined]:
    """Expand open nodes of the pool until a stop rule speaks. `watch` sees the bounds and the cost at every step."""
    queue: list[tuple[float, int]] = [_entry(pool, node, options.order, chances) for node in pool.open_nodes().tolist()]
    heapq.heapify(queue)
    spent, expanded = 0, 0
    bounds = pool.bounds()
    while queue and not _is_done(bounds, options):
        chosen = [heapq.heappop(queue) for _ in range(min(BATCH, len(queue)))]
        paths = [pool.path(node) for _, node in chosen]
        answer = yield Request(paths, options.token_evals - spent)
        count = len(answer.token_ids)
        if count == 0:
            # Nothing was bought, so nothing was spent but, perhaps, the prefix.
            break
        spent += answer.token_evals
        expanded += count
        new = pool.expand(np.array([node for _, node in chosen[:count]]), answer)
        for entry in chosen[count:]:
            heapq.heappush(queue, entry)
        for node in new.tolist():
            heapq.heappush(queue, _entry(pool, node, options.order, chances))
        bounds = pool.bounds()
        if watch is not None:
            watch(bounds, spent)
    return Refined(bounds, spent, expanded, not pool.is_open[: pool.size].any())


def _entry(pool: OpenMass, node: int, order: OrderName, chances: NDArray[np.float64] | None) -> tuple[float, int]:
    """Smallest first: minus the rank of a node, then its number."""
    rank = float(pool.log_p[node])
    if order == "promise" and chances is not None:
        rank += float(chances[pool.depths[node], pool.ball.budget - pool.least[node]])
    return (-rank, node)


def _is_done(bounds: Bounds, options: RefineOptions) -> bool:
    if options.gap is not None and bounds.upper - bounds.lower[-1] <= options.gap:
        return True
    return options.threshold is not None and bounds.verdict(options.threshold) != Verdict.NOT_SHOWN
