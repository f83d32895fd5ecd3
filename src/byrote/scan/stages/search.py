"""Search: near-verbatim mass of the windows that passed the screen, and the certified bounds of every window."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from byrote.models.base import TreeModel
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.screen import is_below_floor
from byrote.search.base import SearchOutcome, SearchTask, target_chars
from byrote.search.engine import Engine
from byrote.search.sizing import choose_slots
from byrote.types import StopReason
from byrote.verdict import Bounds, Verdict


@dataclass(frozen=True, slots=True)
class NearResult:
    """What is certified about one window."""

    bounds: Bounds
    verdict: Verdict
    stop_reason: StopReason
    stop_step: int
    token_evals: int
    screen_score: float
    is_below_floor: bool
    """Whether its screen score is below the floor."""
    outcome: SearchOutcome | None
    """What the search itself found; None for a window that was not searched."""
    policy_bounds: tuple[Bounds, ...] = ()
    """Under each of the further policies; closing and refining leave them as the search found them."""


class SearchStage:
    """Windows through the engine. Their chains must stay where they are until they have a slot, so `search` returns
    when all have one; what is still in flight goes on with the next windows."""

    def __init__(self, model: TreeModel, config: RunConfig) -> None:
        self._model, self._config = model, config
        self._options, self._limits = config.search_options(), config.limits
        self._engine: Engine | None = None
        self._in_flight: dict[int, Measured] = {}
        self._count = 0

    @property
    def is_open(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """Opened when the first window comes: by then the scores have taken their memory."""
        if self._engine is None:
            slots = self._config.slots or choose_slots(self._model, self._options, self._limits)
            self._engine = Engine(self._model, self._options, slots=slots, limits=self._limits)
        return self._engine

    def search(self, passed: Sequence[Measured]) -> Iterator[Measured]:
        """Give every window a slot; those that ended meanwhile, in the order in which they ended."""
        if passed:
            self.engine.put([self._task(item) for item in passed])
            while self.engine.waiting:
                yield from self._settled(self.engine.step())

    def drain(self) -> Iterator[Measured]:
        """Everything that is still in flight."""
        while self._in_flight:
            yield from self._settled(self.engine.step())

    def settle_unsearched(self, screened: Iterable[Measured]) -> Iterator[Measured]:
        """Windows that the screen kept from the search: their bounds are those of the first forward."""
        entries = self._options.edit_budget + 1
        for item in screened:
            item.near = self._result(item, Bounds((0.0,) * entries, (1.0,) * entries), None)
            yield item

    def _task(self, item: Measured) -> SearchTask:
        self._count += 1
        self._in_flight[self._count] = item
        probs = item.score.target_probs if self._options.rank_by == "screen_score" else None
        window = item.window
        return SearchTask(
            self._count,
            window.context_ids,
            window.suffix_ids,
            probs,
            item.chain,
            window.window_id,
            target_chars(window.suffix_text),
        )

    def _settled(self, outcomes: Iterable[SearchOutcome]) -> Iterator[Measured]:
        for outcome in outcomes:
            item = self._in_flight.pop(outcome.key)
            item.chain = None
            item.near = self._result(item, outcome.bounds, outcome)
            yield item

    def _result(self, item: Measured, found: Bounds, outcome: SearchOutcome | None) -> NearResult:
        assert item.screen_score is not None
        target = item.window.suffix_text
        is_written = target is None or self._model.token_texts.writes(item.window.suffix_ids, target)

        def joined(found: Bounds, p: float, p_upper: float | None = None) -> Bounds:
            return with_verbatim(found, p, p_upper) if target is None else with_text(found, p if is_written else 0.0)

        bounds = joined(found, item.score.p, item.score.p_upper)
        policies = len(self._options.policies)
        return NearResult(
            bounds=bounds,
            verdict=bounds.verdict(self._config.threshold),
            stop_reason=StopReason.SCREENED if outcome is None else outcome.stop_reason,
            stop_step=0 if outcome is None else outcome.stop_step,
            token_evals=0 if outcome is None else outcome.token_evals,
            screen_score=item.screen_score,
            is_below_floor=outcome is None or is_below_floor(self._config, item.screen_score),
            outcome=outcome,
            policy_bounds=tuple(
                joined(of_policy, p)
                for of_policy, p in zip(
                    [found] * policies if outcome is None else outcome.policy_bounds,
                    map(math.exp, item.score.log_p[len(item.score.log_p) - policies :]),
                    strict=True,
                )
            ),
        )


def with_text(bounds: Bounds, p_verbatim: float) -> Bounds:
    """Bounds of a text, of which the target's own tokens are one writing: lower[e] ≥ p_z, and upper as found."""
    lower = tuple(max(p_verbatim, found) for found in bounds.lower)
    return Bounds(lower, tuple(max(high, low) for high, low in zip(bounds.upper, lower, strict=True)))


def with_verbatim(bounds: Bounds, p_verbatim: float, p_upper: float | None = None) -> Bounds:
    """Bounds in which the mass at distance 0, which is the target's alone, is the one of teacher forcing.

        lower[e] = p_z + found[e] − found[0]        upper[0] = p_z, elsewhere as found

    A search that came upon the target has p_z in found[0], on another numeric path: one of the two roundings counts,
    never the larger. One that lost it (no pin, or stopped early) has found[0] = 0, and p_z adds to what it found.
    Where p_z is known from `p_verbatim` to `p_upper` only, upper[0] is the least that either of the two passes shows.
    """
    lower = tuple(min(1.0, p_verbatim + (found - bounds.lower[0])) for found in bounds.lower)
    # At least the lower bound: the roundings may differ where nothing is open.
    upper = tuple(max(high, low) for high, low in zip(bounds.upper[1:], lower[1:], strict=True))
    verbatim = lower[0] if p_upper is None else max(lower[0], min(p_upper, bounds.upper[0]))
    return Bounds(lower, (verbatim, *upper))
