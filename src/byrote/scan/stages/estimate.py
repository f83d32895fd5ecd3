"""After the search of a window: close tails, refine what is undecided, estimate what is left open.

The three share one tree per window, so what one has evaluated is free for the next. Certified bounds and the sampled
estimate are kept apart: closing and refining move bounds; the estimate never does.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, ExploreTask
from byrote.explore.explorer import Explorer, OutOfSlots, choose_capacity
from byrote.explore.monte_carlo import window_generator
from byrote.explore.open_mass import OpenMass
from byrote.explore.refinement import RefineOptions, close_tails, refine
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.models.base import TreeModel
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.screen import fraction_of
from byrote.scan.stages.search import NearResult, with_verbatim
from byrote.search.base import SearchOutcome
from byrote.search.screen_score import log_score_table
from byrote.search.sizing import free_memory
from byrote.types import StopReason
from byrote.verdict import Verdict

BATCH_WINDOWS = 128
"""Searched windows held back at once; each holds its frontier (some megabytes) until it is processed."""
CPU_BATCH_WINDOWS = 32
"""The same on a CPU, which explores few windows at once and gains nothing from more."""
FEWEST_EVALS = 64
HELD_SHARE = 0.05
"""Share of the device's free memory that the states of windows held back may take before they are processed."""


class AfterSearch:
    """Collects searched windows as they come and processes them in batches, so that they share forwards.

    One explorer serves all batches, until a batch needs more memory than it has.
    """

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._config = model, config
        self._batch = CPU_BATCH_WINDOWS if model.device.type == "cpu" else BATCH_WINDOWS
        self._queue: list[Measured] = []
        self._held_bytes = 0
        self._most_held_bytes = HELD_SHARE * free_memory(model.device)
        self._explorer: Explorer | None = None
        self._entries = 0
        self.slots: int | None = None
        """Windows explored at once; as many as fit while None."""

    def take(self, searched: Iterable[Measured]) -> Iterator[Measured]:
        """Every window that is ready; others are held back until their batch is full."""
        for item in searched:
            if not _is_explored(item, self._config):
                yield item
                continue
            states = _outcome(item).states
            self._queue.append(item)
            self._held_bytes += 0 if states is None else states.nbytes
            if len(self._queue) >= self._batch or self._held_bytes >= self._most_held_bytes:
                yield from self.flush()

    def flush(self) -> Iterator[Measured]:
        """Process the windows held back; to be called once more at the end."""
        queued, self._queue, self._held_bytes = self._queue, [], 0
        yield from self.process(queued)

    def process(self, searched: Sequence[Measured]) -> Iterator[Measured]:
        """Every searched window once, in the order in which they end. Running out of memory halves the slots: windows
        that had not ended start again, with the same samples."""
        left = dict(enumerate(searched))
        while left:
            entries = max(_entries(item, self._config) for item in left.values())
            tasks = (self._task(key, item) for key, item in list(left.items()))
            try:
                for key, item in self._explorer_for(entries).run(tasks):
                    del left[key]
                    yield item
            except OutOfSlots:
                assert self._explorer is not None
                self.slots, self._explorer = self._explorer.slots // 2, None
                if not self.slots:
                    raise

    def _task(self, key: int, item: Measured) -> ExploreTask[Measured]:
        window = item.window
        exploration = _explore(item, self._config, self._model.eos_ids)
        return ExploreTask(key, window.context_ids, exploration, _outcome(item).states, window.window_id)

    def _explorer_for(self, entries: int) -> Explorer:
        """An explorer whose windows may hold so many nodes each."""
        if self._explorer is None or entries > self._entries:
            self._explorer = None  # frees its memory before the capacity of the next is chosen
            self._entries = 1 << (entries - 1).bit_length()
            limits = self._config.limits
            capacity = choose_capacity(self._model, limits, evaluations=self._entries)
            slots = self.slots or capacity.slots
            policy = self._config.policy
            self._explorer = Explorer(self._model, policy, slots=slots, limits=limits, entries=capacity.entries)
        return self._explorer


def _is_explored(item: Measured, config: RunConfig) -> bool:
    """Whether anything is done with a window after its search; if not, its frontier is dropped."""
    assert item.near is not None
    if not config.needs_frontier:
        return False
    is_undecided = item.near.verdict == Verdict.NOT_SHOWN
    if config.refine or config.closure or _is_estimated(item, config, is_undecided=is_undecided):
        return True
    item.near = replace(item.near, outcome=replace(_outcome(item), frontier=None, states=None))
    return False


def _is_estimated(item: Measured, config: RunConfig, *, is_undecided: bool) -> bool:
    if config.estimate == "off" or (config.estimate == "undecided" and not is_undecided):
        return False
    return fraction_of(item.window.window_id, config.seed) < config.estimate_share


def _outcome(item: Measured) -> SearchOutcome:
    assert item.near is not None
    assert item.near.outcome is not None
    return item.near.outcome


def _entries(item: Measured, config: RunConfig) -> int:
    """Nodes that a window holds when it is done; at least twice those of its search, or they would be left out."""
    assert item.near is not None
    states = _outcome(item).states
    held = len(states) if states is not None else config.beam_width * item.near.stop_step
    evaluations = config.closure * config.suffix_tokens + config.refine
    if config.estimate != "off":
        wanted = residual_options(item.near, config)
        evaluations += wanted.token_evals or 0
    return max(held + evaluations, 2 * held)


def _explore(item: Measured, config: RunConfig, eos_ids: frozenset[int]) -> Exploration[Measured]:
    """Close, refine and estimate one window."""
    assert item.near is not None
    near, outcome, p_verbatim, probs = item.near, _outcome(item), item.score.p, item.score.target_probs
    pool = open_mass(item.window.suffix_ids, outcome, config, eos_ids)
    token_evals = 0

    def is_undecided() -> bool:
        return with_verbatim(pool.bounds(), p_verbatim).verdict(config.threshold) == Verdict.NOT_SHOWN

    if config.closure:
        token_evals += yield from close_tails(pool, most_nodes=config.closure)
    if config.refine and is_undecided():
        options = RefineOptions(token_evals=config.refine, threshold=config.threshold, order="both")
        has_states = outcome.states is not None
        token_evals += (yield from refine(pool, options, target_probs=probs, is_in_memory=has_states)).token_evals
    if _is_estimated(item, config, is_undecided=is_undecided()):
        generator = window_generator(config.seed, item.window.window_id)
        scores = log_score_table(probs, config.edits)
        wanted = residual_options(near, config)
        item.estimate = yield from estimate_open(pool, generator, wanted, log_scores=scores, p_verbatim=p_verbatim)
        item.sampled_verdict = item.estimate.verdict(config.threshold)
        token_evals += item.estimate.token_evals
    bounds = with_verbatim(pool.bounds(), p_verbatim)
    found = sorted([*outcome.continuations, *pool.found], key=lambda continuation: -continuation.log_p)
    kept = tuple(found if config.keeps_all_found else found[: config.kept_found])
    item.near = replace(
        near,
        bounds=bounds,
        verdict=bounds.verdict(config.threshold),
        token_evals=near.token_evals + token_evals,
        outcome=replace(outcome, continuations=kept, frontier=None, states=None),
    )
    return item


def residual_options(near: NearResult, config: RunConfig) -> ResidualOptions:
    """How much to spend on the estimate of a window.

    What `residual` gives; else, for windows that the screen lets pass, half the evaluations of a search to the end of
    the target: where they are few, they decide what a run can show. Others, and windows of a server that may cost
    money, get half of what their own search took.
    """
    passes = near.stop_reason is StopReason.FINISHED or near.screen_score >= config.screen_floor
    whole = config.beam_width * (config.suffix_tokens - 1)
    half = max(FEWEST_EVALS, (whole if passes and not config.is_served else near.token_evals) // 2)
    return ResidualOptions(token_evals=config.residual or half, relative_error=config.residual_error)


def open_mass(
    suffix_ids: tuple[int, ...], outcome: SearchOutcome, config: RunConfig, eos_ids: frozenset[int]
) -> OpenMass:
    """The pool of a searched window: what the search accepted, its frontier, and the mass it did not list."""
    assert outcome.frontier is not None
    ball = Ball(suffix_ids, distance=config.distance, budget=config.edits, eos_ids=eos_ids)
    keep = sys.maxsize if config.keeps_all_found else config.kept_found
    return OpenMass(ball, outcome.frontier, accepted=outcome.bounds.lower, unlisted=outcome.unlisted, keep=keep)
