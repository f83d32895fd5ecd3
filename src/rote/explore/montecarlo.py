"""Plain Monte Carlo: sample M continuations of a window under the policy; the share that ends in the ball is unbiased.

Samples are independent, so the count of hits is binomial and its interval needs no assumption. Evaluations are shared
by samples that stand at the same node, the prefix is evaluated once, and a sample that can no longer end in the ball
is stopped and counted as a miss (`stops_when_lost`); none of this changes the distribution of the hits.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from rote.errors import ConfigError
from rote.explore.intervals import share_interval
from rote.explore.open_mass import Ball
from rote.explore.sampling import BATCH, Starts, roll
from rote.explore.tree import Explorer
from rote.explore.trie import Exploration, ExploreTask
from rote.models.base import TreeModel
from rote.policy import Policy
from rote.search.base import Limits
from rote.search.sizing import require_memory
from rote.types import DistanceName, Estimate, IntervalName, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class MonteCarloOptions:
    """Everything that decides what is sampled. No defaults here: options live with the caller."""

    policy: Policy
    distance: DistanceName
    edit_budget: int
    samples: int
    """M, over all replicates."""
    replicates: int
    seed: int
    interval: IntervalName
    stops_when_lost: bool
    """Stop a sample that cannot end in the ball any more. False follows every sample to T tokens."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples is {self.samples}; at least one sample is needed.")
        if not 1 <= self.replicates <= self.samples:
            raise ConfigError(f"replicates is {self.replicates}; it must be between 1 and the {self.samples} samples.")


@dataclass(frozen=True, slots=True)
class MonteCarloResult:
    """Hits of a window's samples. `replicates` are independent estimates; `curve` holds the estimate after the first
    few samples, then more, up to all of them."""

    window: Window
    estimate: Estimate
    replicates: tuple[float, ...]
    curve: tuple[Estimate, ...]


def sample_windows(
    model: TreeModel, windows: Iterable[Window], options: MonteCarloOptions, *, slots: int, limits: Limits
) -> Iterator[MonteCarloResult]:
    """One result a window, in the order in which windows end. Each depends on its window and the seed alone."""
    require_memory(
        options.replicates * BATCH * options.policy.width(model.vocab_size) * 16,
        torch.device("cpu"),
        what=f"sampling in {options.replicates:,} replicates",
        advice="lower --replicates",
    )
    tasks = (
        ExploreTask(key, window.prefix_ids, _sample(window, options, model.eos_ids))
        for key, window in enumerate(windows)
    )
    explorer = Explorer(model, options.policy, slots=slots, limits=limits)
    for _, result in explorer.run(tasks):
        yield result


def _sample(window: Window, options: MonteCarloOptions, eos_ids: frozenset[int]) -> Exploration[MonteCarloResult]:
    ball = Ball(window.suffix_ids, distance=options.distance, budget=options.edit_budget, eos_ids=eos_ids)
    generator = window_generator(options.seed, window.window_id)
    per_replicate = _shares(options.samples, options.replicates)
    hits = np.zeros(options.replicates, dtype=np.int64)
    drawn = np.zeros(options.replicates, dtype=np.int64)
    token_evals = 0
    curve = []
    for goal in _grid(options.samples):
        # Replicates grow evenly, so that each point of the curve uses samples of all of them.
        reached = np.minimum(per_replicate, _shares(goal, options.replicates))
        starts = Starts([()], ball.root_state()[None], (reached - drawn)[None])
        rolled = yield from roll(
            ball,
            starts,
            generator,
            is_systematic=False,
            ends_exactly=False,
            stops_when_lost=options.stops_when_lost,
        )
        drawn = reached
        hits += rolled.hits[0].astype(np.int64)
        token_evals += rolled.token_evals
        curve.append(_estimate(int(hits.sum()), int(drawn.sum()), token_evals, options.interval))
    return MonteCarloResult(window, curve[-1], tuple((hits / drawn).tolist()), tuple(curve))


def _estimate(hits: int, samples: int, token_evals: int, method: IntervalName) -> Estimate:
    share = hits / samples
    # All hits or none: the spread is 0 and says nothing, so the error is undefined; the interval tells what is known.
    error = math.sqrt(share * (1 - share) / (samples - 1)) if 0 < hits < samples else math.nan
    return Estimate(share, error, share_interval(hits, samples, method=method), samples, token_evals)


def _shares(samples: int, replicates: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Samples of each replicate: even, the first ones take what is left over."""
    shares = np.full(replicates, samples // replicates, dtype=np.int64)
    shares[: samples % replicates] += 1
    return shares


def _grid(samples: int) -> list[int]:
    """10, 20, 50, 100, 200 … up to all samples."""
    steps = [step * 10**power for power in range(1, 12) for step in (1, 2, 5)]
    return [*(step for step in steps if step < samples), samples]


def window_generator(seed: int, window_id: str) -> np.random.Generator:
    """A generator that depends on nothing but the seed and the window."""
    return np.random.default_rng([seed, *window_id.encode()])
