"""After the search of a window: close tails, refine what is undecided, estimate what is left open.

The three share one tree per window, so what one has evaluated is free for the next. Certified bounds and the sampled
estimate are kept apart: closing and refining move bounds; the estimate never does.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import torch

from byrote.explore.ball import Ball
from byrote.explore.base import Exploration, ExploreTask, begun
from byrote.explore.closure import close_tails
from byrote.explore.explorer import MEMORY_SHARE, SHARE_AT_THE_END, Explorer, OutOfSlots, choose_room
from byrote.explore.monte_carlo import window_generator
from byrote.explore.open_mass import OpenMass
from byrote.explore.refinement import RefineOptions, refine
from byrote.explore.residual import ResidualOptions, estimate_open
from byrote.models.base import TreeModel
from byrote.scan.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.screen import is_sampled
from byrote.scan.search import NearResult, with_verbatim
from byrote.search.base import SearchOutcome
from byrote.search.screen_score import rating_table
from byrote.search.sizing import free_memory
from byrote.types import StopReason, Verdict

BATCH_WINDOWS = 128
"""Searched windows queued at once; each holds its frontier (some megabytes) until it is processed. All that a screen
audits at least fit into the queue until the end."""
CPU_BATCH_WINDOWS = 32
"""The same on a CPU, which explores few windows at once and gains nothing from a longer queue."""
MANY_WINDOWS = 16
"""Windows queued at the end of a run for which a GPU's memory is cleared."""
EVALS_PER_SAMPLE = 4
"""What a sample costs on text that is not memorized, where most end early and share their first tokens."""
FEWEST_EVALS = 64
HELD_SHARE = 0.05
"""Share of the device's free memory that the states of queued windows may take before they are processed."""


class AfterSearch:
    """Collects searched windows as they come and processes them in batches, so that they share forwards."""

    def __init__(self, model: TreeModel, config: RunConfig, *, batch_windows: int | None = None) -> None:
        self._config, self._eos_ids = config, model.eos_ids
        self._batch = batch_windows or (CPU_BATCH_WINDOWS if model.device.type == "cpu" else BATCH_WINDOWS)
        self._explorers = Explorers(model, config)
        self._is_cuda = model.device.type == "cuda"
        self._queue: list[Measured] = []
        self._begun: dict[int, Exploration[Measured]] = {}
        """By place in the queue."""
        self._held = 0
        self._most_held = HELD_SHARE * free_memory(model.device)

    def take(self, searched: Iterable[Measured]) -> Iterator[Measured]:
        """Every window that is ready; the others are queued until a batch is full."""
        for item in searched:
            if not _is_explored(item, self._config):
                yield item
                continue
            self._queue.append(item)
            self._held += _states_of(item)
            if len(self._queue) >= self._batch or self._held >= self._most_held:
                yield from self.flush()

    def prepare(self) -> None:
        """Advance queued explorations to their first request, while the host is idle."""
        for place in range(len(self._begun), len(self._queue)):
            self._begun[place] = begun(_explore(self._queue[place], self._config, self._eos_ids))

    @property
    def needs_memory(self) -> bool:
        """Whether so many windows are queued that they should have the memory of earlier stages: a GPU explores as many
        at once as fit, and a forward of few takes nearly as long as one of many."""
        return self._is_cuda and len(self._queue) >= MANY_WINDOWS

    def take_memory(self) -> None:
        """The last windows are explored with as much memory as there is by then."""
        self._explorers.close(share=SHARE_AT_THE_END)
        torch.cuda.empty_cache()

    def release(self) -> None:
        """Release the memory of explorations; the next ones open it again."""
        self._explorers.close()

    def flush(self) -> Iterator[Measured]:
        """Process the queue; to be called once more at the end."""
        queued, self._queue, self._held = self._queue, [], 0
        explorations, self._begun = self._begun, {}
        if queued:
            yield from process(queued, self._config, self._explorers, self._eos_ids, explorations)


def _is_explored(item: Measured, config: RunConfig) -> bool:
    """Whether a window is explored after its search; if not, the frontier of the search is released."""
    assert item.near is not None
    if not config.needs_frontier:
        return False
    if config.refine or config.closure or config.estimate == "all":
        return True
    if item.near.verdict == Verdict.NOT_SHOWN and _is_sampled(item, item.near, config):
        return True
    assert item.near.outcome is not None
    item.near = replace(item.near, outcome=replace(item.near.outcome, frontier=None, states=None))
    return False


def _is_sampled(item: Measured, near: NearResult, config: RunConfig) -> bool:
    """Of windows below the screen's floor only a sample is sampled."""
    return not near.is_below_floor or is_sampled(config, item.window.window_id, near.screen_score)


def _states_of(item: Measured) -> int:
    """Bytes that a window's states hold on the device."""
    states = None if item.near is None or item.near.outcome is None else item.near.outcome.states
    return 0 if states is None else states.nbytes


class Explorers:
    """The explorer of a scan: one serves all windows, until some need more memory than it has or it has taken more than
    there is."""

    def __init__(self, model: TreeModel, config: RunConfig, *, slots: int | None = None) -> None:
        self._model, self._config, self._slots = model, config, slots
        self._open: Explorer | None = None
        self._entries, self._share = 0, MEMORY_SHARE

    def holding(self, entries: int) -> Explorer:
        """One whose windows may hold so many nodes each."""
        if self._open is None or entries > self._entries:
            self._open = None  # what it has taken is free again
            self._entries = 1 << (entries - 1).bit_length()
            limits = self._config.limits
            room = choose_room(self._model, limits, evaluations=self._entries, share=self._share)
            slots = self._slots or room.slots
            self._open = Explorer(self._model, self._config.policy, slots=slots, limits=limits, entries=room.entries)
        return self._open

    def close(self, *, share: float = MEMORY_SHARE) -> None:
        """What it has taken is free again; the next one takes this share of what is free by then."""
        self._open, self._share = None, share

    def halve(self) -> bool:
        """Half as many windows at once from now on; False when there is but one."""
        assert self._open is not None
        self._slots, self._open = self._open.slots // 2, None
        return self._slots > 0


def process(
    searched: Iterable[Measured],
    config: RunConfig,
    explorers: Explorers,
    eos_ids: frozenset[int],
    begun_before: Mapping[int, Exploration[Measured]] = MappingProxyType({}),
) -> Iterator[Measured]:
    """Every searched window once, in the order in which they end; those that have begun by their places. Running out of
    memory halves the slots: windows that had not ended start again, with the same samples."""
    left, explorations = dict(enumerate(searched)), dict(begun_before)

    def task(key: int, item: Measured) -> ExploreTask[Measured]:
        assert item.near is not None
        assert item.near.outcome is not None
        exploration = explorations.pop(key, None) or _explore(item, config, eos_ids)
        window = item.window
        return ExploreTask(key, window.prefix_ids, exploration, item.near.outcome.states, window.window_id)

    while left:
        explorer = explorers.holding(max(_entries(item, config) for item in left.values()))
        try:
            for key, item in explorer.run(task(*each) for each in left.copy().items()):
                del left[key]
                yield item
        except OutOfSlots:
            if not explorers.halve():
                raise


def _entries(item: Measured, config: RunConfig) -> int:
    """Nodes that a window holds when it is done; at least twice those of its search, or they would be left out."""
    assert item.near is not None
    assert item.near.outcome is not None
    states = item.near.outcome.states
    held = len(states) if states is not None else config.beam_width * item.near.stop_step
    evaluations = config.closure * config.suffix_tokens + config.refine
    if config.estimate != "none":
        wanted = residual_options(item.near, config)
        evaluations += wanted.token_evals or EVALS_PER_SAMPLE * (wanted.tickets or 0)
    return max(held + evaluations, 2 * held)


def _explore(item: Measured, config: RunConfig, eos_ids: frozenset[int]) -> Exploration[Measured]:
    assert item.near is not None
    assert item.near.outcome is not None
    near, outcome = item.near, item.near.outcome
    pool = open_mass(item.window.suffix_ids, outcome, config, eos_ids)
    probs = item.score.target_probs
    token_evals = 0
    if config.closure:
        token_evals += (yield from close_tails(pool, most_nodes=config.closure)).token_evals
    is_open = with_verbatim(pool.bounds(), item.score.p).verdict(config.threshold) == Verdict.NOT_SHOWN
    if config.refine and is_open:
        options = RefineOptions(token_evals=config.refine, gap=None, threshold=config.threshold, order="both")
        has_states = outcome.states is not None
        token_evals += (yield from refine(pool, options, target_probs=probs, is_remembered=has_states)).token_evals
    is_open = with_verbatim(pool.bounds(), item.score.p).verdict(config.threshold) == Verdict.NOT_SHOWN
    if config.estimate == "all" or (config.estimate == "auto" and is_open and _is_sampled(item, near, config)):
        generator = window_generator(config.seed, item.window.window_id)
        scores = rating_table(probs, config.edit_budget)
        wanted = residual_options(near, config)
        item.estimate = yield from estimate_open(pool, generator, wanted, ratings=scores, p_verbatim=item.score.p)
        item.sampled_verdict = item.estimate.verdict(config.threshold)
        token_evals += item.estimate.token_evals
    item.near = _tightened(near, outcome, pool, config, p_verbatim=item.score.p, token_evals=token_evals)
    return item


def residual_options(near: NearResult, config: RunConfig) -> ResidualOptions:
    """What the options ask for; else half the evaluations of a search to the end of the target, for windows that pass
    the screen; where they are few, they decide what a run can conclude. Others, and windows of a server that may cost
    money, get half of what their own search took.

    A window of the screen's audit stands for many, and its search is short. All that are sampled get the same number of
    samples, so that the chance of finding an extractable one is known beforehand.
    """
    if near.is_below_floor:
        return ResidualOptions(token_evals=None, tickets=config.screen_samples, relative_error=None)
    passes = near.stop_reason is StopReason.FINISHED or near.screen_score >= config.screen_floor
    whole = config.beam_width * (config.suffix_tokens - 1)
    half = max(FEWEST_EVALS, (whole if passes and not config.is_served else near.token_evals) // 2)
    return ResidualOptions(token_evals=config.residual or half, relative_error=config.residual_error)


def open_mass(
    suffix_ids: tuple[int, ...], outcome: SearchOutcome, config: RunConfig, eos_ids: frozenset[int]
) -> OpenMass:
    """The pool of a searched window: what the search accepted, its frontier, and the mass it did not list."""
    assert outcome.frontier is not None
    ball = Ball(suffix_ids, distance=config.distance, budget=config.edit_budget, eos_ids=eos_ids)
    keep = sys.maxsize if config.keeps_all_found else config.keep
    return OpenMass(ball, outcome.frontier, accepted=outcome.bounds.lower, unlisted=outcome.unlisted, keep=keep)


def _tightened(
    near: NearResult, outcome: SearchOutcome, pool: OpenMass, config: RunConfig, *, p_verbatim: float, token_evals: int
) -> NearResult:
    """The result with the pool's bounds, its heaviest continuations merged in, and the frontier let go."""
    bounds = with_verbatim(pool.bounds(), p_verbatim)
    continuations = sorted([*outcome.continuations, *pool.found], key=lambda continuation: -continuation.log_p)
    kept = tuple(continuations if config.keeps_all_found else continuations[: config.keep])
    return replace(
        near,
        bounds=bounds,
        verdict=bounds.verdict(config.threshold),
        token_evals=near.token_evals + token_evals,
        outcome=replace(outcome, continuations=kept, frontier=None, states=None),
    )
