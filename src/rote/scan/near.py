"""Near-verbatim mass of a stream of windows: rate each by its teacher-forced scores, search where it may matter.

The screen is a heuristic and says so: a screened window keeps lower = p_verbatim (a valid bound), upper = 1 (at ε = 0
p_verbatim itself) and stop reason `screened`. A seeded sample of screened windows is searched in full, so that a run
can report how many a screen of this kind can have missed. The sample is the windows whose hash is smallest: at least
`sample_least` of them, and every one whose hash falls below `sample_share`. Which windows those are does not depend on
order or on resuming.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rote.models.base import TreeModel
from rote.models.teacher_forcing import VerbatimScore
from rote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from rote.search.engine import Engine
from rote.search.rating import rating
from rote.types import Bounds, StopReason, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """When to search: rating ≥ `floor`, or drawn into the sample of screened windows."""

    floor: float
    sample_share: float
    sample_least: int
    seed: int

    def hash_fraction(self, window_id: str) -> float:
        """A number in [0, 1) that depends on nothing but the window and the seed."""
        digest = hashlib.blake2b(window_id.encode(), digest_size=8, key=str(self.seed).encode()).digest()
        return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True, slots=True)
class NearResult:
    """What is certified about one window."""

    score: VerbatimScore
    bounds: Bounds
    verdict: Verdict
    stop_reason: StopReason
    stop_step: int
    search_evals: int
    rating: float
    was_rated_below_floor: bool
    outcome: SearchOutcome | None
    """What the search itself found, its own bounds included; None for a window that was not searched."""


def measure_near(
    model: TreeModel,
    scores: Iterable[VerbatimScore],
    options: SearchOptions,
    *,
    threshold: float,
    screen: Screen | None,
    slots: int,
    limits: Limits,
    emit: Callable[[NearResult], None],
) -> Engine:
    """Hands every result to `emit` as soon as it is certain: screened windows at once, searched ones when they end.

    Memory does not grow with the number of windows. Returns the engine, for its counters.
    """
    run = _Run(options, threshold, screen, emit)
    engine = Engine(model, options, slots=slots, limits=limits)
    for outcome in engine.run(run.tasks(scores)):
        emit(run.searched(outcome))
    return engine


class _Run:
    """Splits the stream: what goes to the engine, what is settled by the screen, what waits for the sample."""

    def __init__(
        self,
        options: SearchOptions,
        threshold: float,
        screen: Screen | None,
        emit: Callable[[NearResult], None],
    ) -> None:
        self._options, self._threshold, self._screen, self._emit = options, threshold, screen, emit
        self._in_flight: dict[int, tuple[VerbatimScore, float]] = {}
        # Largest hash first, so that the one to give up is on top: the sample's guaranteed part.
        self._waiting: list[tuple[float, int, VerbatimScore, float]] = []

    def tasks(self, scores: Iterable[VerbatimScore]) -> Iterator[SearchTask]:
        for key, score in enumerate(scores):
            chance = rating(score.target_probs, self._options.edit_budget)
            if self._screen is None or chance >= self._screen.floor:
                yield self._task(key, score, chance)
            else:
                self._set_aside(key, score, chance, self._screen)
        # The guaranteed part of the sample is known only now. Heaviest hash last, so resumed runs agree.
        for _, key, score, chance in sorted(self._waiting, key=lambda entry: -entry[0]):
            yield self._task(key, score, chance)
        self._waiting.clear()

    def _set_aside(self, key: int, score: VerbatimScore, chance: float, screen: Screen) -> None:
        fraction = screen.hash_fraction(score.window.window_id)
        heapq.heappush(self._waiting, (-fraction, key, score, chance))
        while len(self._waiting) > screen.sample_least and -self._waiting[0][0] >= screen.sample_share:
            _, _, given_up, its_chance = heapq.heappop(self._waiting)
            self._emit(self._not_searched(given_up, its_chance))

    def _task(self, key: int, score: VerbatimScore, chance: float) -> SearchTask:
        self._in_flight[key] = (score, chance)
        probs = score.target_probs if self._options.rank_by == "promise" else None
        return SearchTask(key, score.window.prefix_ids, score.window.suffix_ids, probs)

    def searched(self, outcome: SearchOutcome) -> NearResult:
        score, chance = self._in_flight.pop(outcome.key)
        bounds = with_verbatim(outcome.bounds, score.p)
        return NearResult(
            score=score,
            bounds=bounds,
            verdict=bounds.verdict(self._threshold),
            stop_reason=outcome.stop_reason,
            stop_step=outcome.stop_step,
            search_evals=outcome.token_evals,
            rating=chance,
            was_rated_below_floor=self._screen is not None and chance < self._screen.floor,
            outcome=outcome,
        )

    def _not_searched(self, score: VerbatimScore, chance: float) -> NearResult:
        budget = self._options.edit_budget
        bounds = with_verbatim(Bounds((0.0,) * (budget + 1), (1.0,) * (budget + 1)), score.p)
        return NearResult(
            score=score,
            bounds=bounds,
            verdict=bounds.verdict(self._threshold),
            stop_reason=StopReason.SCREENED,
            stop_step=0,
            search_evals=0,
            rating=chance,
            was_rated_below_floor=True,
            outcome=None,
        )


def with_verbatim(bounds: Bounds, p_verbatim: float) -> Bounds:
    """Bounds in which the mass at distance 0, which is the target's alone, is what teacher forcing says it is.

        lower[e] = p_z + found[e] − found[0]        upper[0] = p_z, elsewhere as found

    A search that came upon the target has p_z in found[0], on another numeric path: one of the two roundings counts,
    never the larger. One that lost it (no pin, or stopped early) has found[0] = 0, and p_z adds to what it found.
    """
    lower = tuple(min(1.0, p_verbatim + (found - bounds.lower[0])) for found in bounds.lower)
    # At least the lower bound: the roundings may differ where nothing is open.
    upper = tuple(max(high, low) for high, low in zip(bounds.upper[1:], lower[1:], strict=True))
    return Bounds(lower, (lower[0], *upper))
