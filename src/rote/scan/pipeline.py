"""One stream of windows through every measure that was asked for: score → greedy → search → row.

Rows leave in the order in which windows are settled, not in the order they came. Memory is bounded by batches and
slots, whatever the number of windows.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rote.models.base import TreeModel
from rote.models.teacher_forcing import VerbatimScore, score_verbatim
from rote.scan.after_search import PostProcessed, PostProcessor
from rote.scan.columns import NEAR
from rote.scan.greedy import GREEDY, GreedyResult, generate_greedy, is_greedy_verbatim
from rote.scan.near import NearResult, measure_near
from rote.scan.options import RunConfig
from rote.scan.verify import verify
from rote.search.sizing import choose_slots
from rote.types import Window

CHUNK_BATCHES = 8
"""Teacher-forced batches taken together, so that greedy generation fills its slots."""


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """A finished window: its row of results.parquet and its rows of continuations.parquet."""

    row: dict[str, Any]
    continuations: list[dict[str, Any]]


@dataclass(slots=True)
class StreamFacts:
    """What the run learned about itself on the way."""

    slots: int | None = None
    peak_entries: int | None = None
    forwards: int = 0
    notes: list[str] = field(default_factory=list)


def measure_windows(
    model: TreeModel,
    windows: Iterable[Window],
    config: RunConfig,
    *,
    decode: Callable[[tuple[int, ...]], str],
    emit: Callable[[MeasuredWindow], None],
) -> StreamFacts:
    """Measure every window and hand each finished one to `emit`."""
    stream = _Stream(model, config, decode, emit)
    return stream.run(windows)


class _Stream:
    def __init__(
        self,
        model: TreeModel,
        config: RunConfig,
        decode: Callable[[tuple[int, ...]], str],
        emit: Callable[[MeasuredWindow], None],
    ) -> None:
        self.model, self.config, self.decode, self.emit = model, config, decode, emit
        self.greedy: dict[str, GreedyResult] = {}
        self.facts = StreamFacts()

    def run(self, windows: Iterable[Window]) -> StreamFacts:
        config = self.config
        if "near" in config.measures:
            options = config.search_options()
            self.facts.slots = config.slots or choose_slots(self.model, options, config.limits)
            after = PostProcessor(self.model, config, emit=lambda processed: self.emit(self._near_row(processed)))
            engine = measure_near(
                self.model,
                self._scored(windows),
                options,
                threshold=config.threshold,
                screen=config.screen_options(),
                slots=self.facts.slots,
                limits=config.limits,
                emit=after.add,
            )
            after.flush()
            self.facts.slots, self.facts.peak_entries, self.facts.forwards = (
                engine.slots,
                engine.counters.peak_entries,
                engine.counters.forwards,
            )
        elif "verbatim" in config.measures:
            for score in self._scored(windows):
                self.emit(MeasuredWindow(self._row(score, 0), []))
        else:
            for result in self._greedy(windows):
                self.emit(MeasuredWindow(_window_row(result.window) | _greedy_columns(result), []))
        return self.facts

    def _scored(self, windows: Iterable[Window]) -> Iterator[VerbatimScore]:
        config = self.config
        for chunk in _chunks(windows, CHUNK_BATCHES * config.batch_windows):
            scores = list(score_verbatim(self.model, chunk, config.policies, batch_windows=config.batch_windows))
            if "greedy" in config.measures:
                self._generate(scores)
            yield from scores

    def _generate(self, scores: list[VerbatimScore]) -> None:
        """Greedy continuations of these windows; generation only where the ranks do not already show the result."""
        generated = []
        for score in scores:
            window = score.window
            if is_greedy_verbatim(window.suffix_ids, score.suffix_ranks, self.model.eos_ids):
                self.greedy[window.window_id] = GreedyResult(window, window.suffix_ids, 0)
            else:
                generated.append(window)
        for result in self._greedy(generated):
            self.greedy[result.window.window_id] = result

    def _greedy(self, windows: Iterable[Window]) -> Iterator[GreedyResult]:
        slots = self.config.slots or choose_slots(self.model, GREEDY, self.config.limits)
        return generate_greedy(self.model, windows, slots=slots, limits=self.config.limits)

    def _row(self, score: VerbatimScore, further_evals: int) -> dict[str, Any]:
        row = _window_row(score.window)
        evals = score.token_evals + further_evals
        if "verbatim" in self.config.measures:
            row |= {
                "log_p_verbatim": score.log_p[0],
                "p_verbatim": score.p,
                "suffix_ranks": list(score.suffix_ranks),
            }
            if self.config.sweep:
                row["sweep_log_p"] = list(score.log_p[1:])
        if "greedy" in self.config.measures:
            greedy = self.greedy.pop(score.window.window_id)
            row |= _greedy_columns(greedy)
            evals += greedy.token_evals
        return row | {"token_evals": evals}

    def _near_row(self, processed: PostProcessed) -> MeasuredWindow:
        result = processed.result
        row = self._row(result.score, result.search_evals) | NEAR.fill(result)
        if self.config.residual:
            row |= processed.columns()
        if self.config.verify:
            row |= self._verified_columns(result, row)
        return MeasuredWindow(row, self._continuation_rows(result))

    def _verified_columns(self, result: NearResult, row: dict[str, Any]) -> dict[str, Any]:
        found = () if result.outcome is None else result.outcome.continuations
        if not found:
            return {"verified_mass": None, "verified_share": None, "verified_shift": None}
        in_float32 = getattr(self.model, "in_float32", self.model)
        checked = verify(
            in_float32,
            result.score.window,
            found,
            policy=self.config.policy,
            lower=math.fsum(math.exp(continuation.log_p) for continuation in found),
        )
        return {
            "verified_mass": checked.verified_mass,
            "verified_share": checked.share_of_lower,
            "verified_shift": checked.largest_shift,
            "token_evals": row["token_evals"] + checked.token_evals,
        }

    def _continuation_rows(self, result: NearResult) -> list[dict[str, Any]]:
        if result.outcome is None:
            return []
        window = result.score.window
        return [
            {
                "window_id": window.window_id,
                "rank": rank,
                "token_ids": list(continuation.token_ids),
                "text": self.decode(continuation.token_ids),
                "log_p": continuation.log_p,
                "distance": continuation.distance,
            }
            for rank, continuation in enumerate(result.outcome.continuations[: self.config.keep], start=1)
        ]


def _chunks(windows: Iterable[Window], size: int) -> Iterator[list[Window]]:
    rest = iter(windows)
    while chunk := list(islice(rest, size)):
        yield chunk


def _window_row(window: Window) -> dict[str, Any]:
    return {
        "window_id": window.window_id,
        "document": window.document,
        "split": str(window.split),
        "char_start": window.char_start,
        "suffix_char_start": window.suffix_char_start,
        "char_end": window.char_end,
        "prefix_ids": list(window.prefix_ids),
        "suffix_ids": list(window.suffix_ids),
    }


def _greedy_columns(result: GreedyResult) -> dict[str, Any]:
    return {
        "greedy_hamming": result.hamming,
        "greedy_levenshtein": result.levenshtein,
        "token_evals": result.token_evals,
    }
