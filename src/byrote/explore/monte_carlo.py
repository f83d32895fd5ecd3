"""Plain Monte Carlo: sample M continuations of a window under the policy; the share that ends in the ball is unbiased.

Samples are independent, so the count of hits is binomial and its interval needs no assumption. Evaluations are shared
by samples that are at the same node, the prefix is evaluated once, and a sample that can no longer end in the ball
is stopped and counted as a miss (`stops_when_lost`); none of this changes the distribution of the hits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from byrote.distance.text import TextDistance
from byrote.errors import ConfigError
from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, ExploreTask
from byrote.explore.explorer import ENTRIES, Explorer, choose_capacity
from byrote.explore.sampling import Sampler, Samples
from byrote.explore.tree import Tree
from byrote.models.base import TreeModel
from byrote.policy import Policy
from byrote.search.base import Limits
from byrote.search.sizing import require_memory
from byrote.types import DistanceName, Window

BYTES_PER_SAMPLE = 256
"""What a sample adds to its window's tree."""
BATCH = 256
"""Samples followed at once. Their paths must fit into memory together, or they are evaluated again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonteCarloOptions:
    """Everything that decides what is sampled."""

    policy: Policy
    distance: DistanceName
    edit_budget: int
    samples: int
    """M, over all replicates."""
    replicates: int
    seed: int
    text: TextDistance | None = None
    """The rule of answers that are compared as text."""
    stops_when_lost: bool
    """Stop a sample that cannot end in the ball any more. False follows every sample to T tokens."""

    def __post_init__(self) -> None:
        if not 1 <= self.replicates <= self.samples:
            raise ConfigError(f"replicates is {self.replicates}; it must be between 1 and the {self.samples} samples.")


class Count(NamedTuple):
    """Samples that ended in the ball, of how many, and what they cost."""

    hits: int
    samples: int
    token_evals: int


@dataclass(frozen=True, slots=True)
class MonteCarloResult:
    """Hits of a window's samples. `replicates` are independent shares; `curve` counts the hits of the first few
    samples, then of more, up to all of them."""

    window: Window
    replicates: tuple[float, ...]
    curve: tuple[Count, ...]

    @property
    def count(self) -> Count:
        return self.curve[-1]


def sample_windows(
    model: TreeModel, windows: Iterable[Window], options: MonteCarloOptions, *, slots: int | None, limits: Limits
) -> Iterator[MonteCarloResult]:
    """One result a window, in the order in which windows end. Each depends on its window and the seed alone.

    Without `slots` there are as many as fit into the device's memory.
    """
    require_memory(
        options.samples * BYTES_PER_SAMPLE,
        torch.device("cpu"),
        what=f"{options.samples:,} samples of a window",
        advice="lower --samples",
    )
    tasks = (
        ExploreTask(key, window.context_ids, _sample(window, options, model.eos_ids), name=window.window_id)
        for key, window in enumerate(windows)
    )
    slots = slots or choose_capacity(model, limits, evaluations=ENTRIES).slots
    explorer = Explorer(model, options.policy, slots=slots, limits=limits)
    for _, result in explorer.run(tasks):
        yield result


def _sample(window: Window, options: MonteCarloOptions, eos_ids: frozenset[int]) -> Exploration[MonteCarloResult]:
    ball = Ball(
        window.suffix_ids,
        distance=options.distance,
        budget=options.edit_budget,
        eos_ids=eos_ids,
        text=options.text,
        suffix_text=window.suffix_text,
    )
    generator = window_generator(options.seed, window.window_id)
    sampler = Sampler(Tree(ball))
    hits = np.zeros(options.replicates, dtype=np.int64)
    drawn, token_evals = 0, 0
    curve = []
    steps = [step * 10**power for power in range(1, 12) for step in (1, 2, 5)]  # 10, 20, 50, 100, 200 …
    for goal in [*(step for step in steps if step < options.samples), options.samples]:
        while drawn < goal:
            samples = Samples.plain(min(BATCH, goal - drawn))
            sampled = yield from sampler.follow(samples, generator, stops_when_lost=options.stops_when_lost)
            # Samples go to the replicates in turn, so that each point of the curve uses samples of all of them.
            turns = np.arange(drawn, drawn + len(sampled.hits)) % options.replicates
            hits += np.bincount(turns[sampled.hits], minlength=options.replicates)
            drawn += len(sampled.hits)
            token_evals += sampled.token_evals
        curve.append(Count(int(hits.sum()), drawn, token_evals))
    sizes = np.bincount(np.arange(drawn) % options.replicates, minlength=options.replicates)
    return MonteCarloResult(window, tuple((hits / sizes).tolist()), tuple(curve))


def window_generator(seed: int, window_id: str) -> np.random.Generator:
    """A generator that depends on nothing but the seed and the window."""
    return np.random.default_rng([seed, *window_id.encode()])
