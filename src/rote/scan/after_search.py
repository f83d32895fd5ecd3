"""After the search of a window: close tails, refine what is undecided, estimate what is left open.

The three share one tree per window, so what one has evaluated is free for the next. Certified bounds and the sampled
estimate are kept apart: closing and refining move bounds; the estimate never does.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rote.explore.closure import close_tails
from rote.explore.montecarlo import window_generator
from rote.explore.open_mass import Ball, OpenMass
from rote.explore.refinement import RefineOptions, refine
from rote.explore.residual import ResidualOptions, estimate_open
from rote.explore.tree import Explorer, choose_room
from rote.explore.trie import Exploration, ExploreTask
from rote.models.base import TreeModel
from rote.scan.near import NearResult, with_verbatim
from rote.scan.options import RunConfig
from rote.search.base import SearchOutcome
from rote.search.cache import TreeCache
from rote.search.rating import completion_table
from rote.search.sizing import free_memory
from rote.types import Estimate, Verdict

BATCH_WINDOWS = 32
"""Searched windows held back at once; each holds its frontier (some megabytes) until it is processed."""
HELD_SHARE = 0.05
"""Share of the device's free memory that the states of windows held back may take before they are processed."""


@dataclass(frozen=True, slots=True)
class PostProcessed:
    """A near-verbatim result with tightened bounds and its cost added up, and the sampled estimate beside it."""

    result: NearResult
    estimate: Estimate | None
    """None when no estimate was asked for, or the window was not searched."""

    def columns(self) -> dict[str, Any]:
        """The estimate's columns of results.parquet; nulls when there is none."""
        if self.estimate is None:
            names = ("mass_estimate", "mass_standard_error", "mass_low", "mass_high", "mass_limit", "mass_samples")
            return dict.fromkeys(names)
        return {
            "mass_estimate": self.estimate.value,
            "mass_standard_error": self.estimate.standard_error,
            "mass_low": self.estimate.interval.low,
            "mass_high": self.estimate.interval.high,
            "mass_limit": self.estimate.upper_limit,
            "mass_samples": self.estimate.samples,
        }


def post_process(
    model: TreeModel, results: Iterable[NearResult], config: RunConfig, *, slots: int | None = None
) -> Iterator[PostProcessed]:
    """Every result once, in the order in which they end. Windows that were not searched pass through."""
    passed: list[PostProcessed] = []

    def tasks() -> Iterator[ExploreTask[PostProcessed]]:
        for key, result in enumerate(results):
            if result.outcome is None or result.outcome.frontier is None or not config.needs_frontier:
                passed.append(PostProcessed(result, None))
                continue
            exploration = _process(result, result.outcome, config, model.eos_ids)
            yield ExploreTask(key, result.score.window.prefix_ids, exploration, result.outcome.states)

    searched = TreeCache.worst_case_entries(*config.limits, config.search_options().lanes)
    evaluations = config.closure * config.suffix_tokens + config.refine + config.residual
    room = choose_room(model, config.limits, evaluations=searched + evaluations)
    explorer = Explorer(model, config.policy, slots=slots or room.slots, limits=config.limits, entries=room.entries)
    for _, processed in explorer.run(tasks()):
        yield processed
    yield from passed


@dataclass(slots=True)
class PostProcessor:
    """Collects results as they come and processes them in batches, so that windows share forwards."""

    model: TreeModel
    config: RunConfig
    emit: Callable[[PostProcessed], None]
    batch_windows: int = BATCH_WINDOWS
    _waiting: list[NearResult] = field(default_factory=list)
    _held: int = 0
    _most_held: float = field(init=False)

    def __post_init__(self) -> None:
        self._most_held = HELD_SHARE * free_memory(self.model.device)

    def add(self, result: NearResult) -> None:
        if result.outcome is None or not self.config.needs_frontier:
            self.emit(PostProcessed(result, None))
            return
        self._waiting.append(result)
        self._held += 0 if result.outcome.states is None else result.outcome.states.nbytes
        if len(self._waiting) >= self.batch_windows or self._held >= self._most_held:
            self.flush()

    def flush(self) -> None:
        """Process what is waiting; to be called once more at the end."""
        waiting, self._waiting, self._held = self._waiting, [], 0
        for processed in post_process(self.model, waiting, self.config):
            self.emit(processed)


def _process(
    result: NearResult, outcome: SearchOutcome, config: RunConfig, eos_ids: frozenset[int]
) -> Exploration[PostProcessed]:
    pool = open_mass(result, outcome, config, eos_ids)
    probs = result.score.target_probs
    token_evals = 0
    if config.closure:
        token_evals += (yield from close_tails(pool, most_nodes=config.closure)).token_evals
    is_open = with_verbatim(pool.bounds(), result.score.p).verdict(config.threshold) == Verdict.NOT_SHOWN
    if config.refine and is_open:
        options = RefineOptions(token_evals=config.refine, gap=None, threshold=config.threshold, order="both")
        has_states = outcome.states is not None
        token_evals += (yield from refine(pool, options, target_probs=probs, is_remembered=has_states)).token_evals
    estimate = None
    if config.residual:
        wanted = ResidualOptions(token_evals=config.residual, relative_error=config.residual_error)
        generator = window_generator(config.seed, result.score.window.window_id)
        chances = completion_table(probs, config.edit_budget)
        estimate = yield from estimate_open(pool, generator, wanted, chances=chances)
        token_evals += estimate.token_evals
    return PostProcessed(_tightened(result, outcome, pool, config, token_evals), estimate)


def open_mass(result: NearResult, outcome: SearchOutcome, config: RunConfig, eos_ids: frozenset[int]) -> OpenMass:
    """The pool of a searched window: what the search accepted, its frontier, and the mass it did not list."""
    assert outcome.frontier is not None
    ball = Ball(result.score.window.suffix_ids, distance=config.distance, budget=config.edit_budget, eos_ids=eos_ids)
    return OpenMass(ball, outcome.frontier, accepted=outcome.bounds.lower, unlisted=outcome.unlisted, keep=config.keep)


def _tightened(
    result: NearResult, outcome: SearchOutcome, pool: OpenMass, config: RunConfig, token_evals: int
) -> NearResult:
    """The result with the pool's bounds, its heaviest continuations merged in, and the frontier let go."""
    bounds = with_verbatim(pool.bounds(), result.score.p)
    continuations = sorted([*outcome.continuations, *pool.found], key=lambda continuation: -continuation.log_p)
    kept = tuple(continuations if config.verify else continuations[: config.keep])
    return replace(
        result,
        bounds=bounds,
        verdict=bounds.verdict(config.threshold),
        search_evals=result.search_evals + token_evals,
        outcome=replace(outcome, continuations=kept, frontier=None, states=None),
    )
