"""How far do numbers move with rounding? Accepted mass re-scored by teacher forcing, and a batch-invariance check.

Cached and teacher-forced logits differ by rounding, and in half precision also with the batch. `verify` re-scores the
heaviest accepted continuations in float32 until they cover `share` of the lower bound. `self_check` searches the same
windows alone and in a batch, in the run's precision and in float32. Both only report; no bound is changed.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from byrote.models.base import TreeModel
from byrote.models.numbers import require_numbers
from byrote.models.teacher_forcing import score_verbatim
from byrote.policy import Policy
from byrote.scan.measure import Measured
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.types import Continuation, Window

VERIFIED_SHARE = 0.999


@dataclass(frozen=True, slots=True)
class VerifiedMass:
    """Mass of the re-scored continuations, the share of the lower bound they make up, and the largest move of a
    log-probability."""

    verified_mass: float
    share_of_lower: float
    largest_shift: float
    token_evals: int


def verify(
    model: TreeModel, window: Window, continuations: Sequence[Continuation], *, policy: Policy, lower: float
) -> VerifiedMass:
    """Re-score continuations, heaviest first, until they cover VERIFIED_SHARE of `lower`. `model` runs in float32."""
    chosen: list[Continuation] = []
    covered = 0.0
    for continuation in sorted(continuations, key=lambda item: -item.log_p):
        if covered >= VERIFIED_SHARE * lower:
            break
        chosen.append(continuation)
        covered += math.exp(continuation.log_p)
    if not chosen:
        return VerifiedMass(0.0, math.nan, math.nan, 0)
    scores = model.score([window.prefix_ids + item.token_ids for item in chosen], len(window.suffix_ids), [policy])
    again = scores.log_probs[0].sum(-1).tolist()
    require_numbers(again, model.dtype, what=f"continuations of window {window.window_id}")
    shifts = [_shift(item.log_p, log_p) for item, log_p in zip(chosen, again, strict=True)]
    return VerifiedMass(
        verified_mass=math.fsum(math.exp(log_p) for log_p in again),
        # The search and the first forward round differently: all of it may come out a hair above the bound.
        share_of_lower=min(1.0, covered / lower) if lower > 0 else math.nan,
        largest_shift=max(shifts),
        token_evals=len(chosen) * len(window.ids),
    )


class VerifyStage:
    """Re-scores what a searched window has accepted, in float32."""

    def __init__(self, model: TreeModel, policy: Policy) -> None:
        self._model, self._policy = model, policy

    def check(self, item: Measured) -> None:
        if item.near is None or item.near.outcome is None:
            return
        lower = item.near.bounds.lower
        # The baseline accepts continuations beyond the budget too, which the lower bound does not count.
        found = [one for one in item.near.outcome.continuations if one.distance < len(lower)]
        if found:
            item.verified = verify(self._model.in_float32, item.window, found, policy=self._policy, lower=lower[-1])


@dataclass(frozen=True, slots=True)
class Movement:
    """How results of the same windows differ between two ways of computing them."""

    windows: int
    largest_shift: float
    """Largest |Δ log p| over continuations found both ways; NaN when there is none."""
    continuations_compared: int
    verdicts_changed: int
    largest_lower_change: float
    """Largest |Δ lower| of a window."""


def self_check(
    model: TreeModel,
    in_float32: TreeModel,
    windows: Sequence[Window],
    options: SearchOptions,
    *,
    threshold: float,
    slots: int,
    limits: Limits,
) -> dict[str, Any]:
    """The same windows alone and in a batch, in the run's precision and in float32."""
    alone = _search(model, windows, options, slots=1, limits=limits)
    together = _search(model, windows, options, slots=slots, limits=limits)
    exact = _search(in_float32, windows, options, slots=1, limits=limits)
    return {
        "slots": slots,
        "alone_against_company": asdict(compare(alone, together, threshold)),
        "run_precision_against_float32": asdict(compare(alone, exact, threshold)),
    }


def compare(left: Sequence[SearchOutcome], right: Sequence[SearchOutcome], threshold: float) -> Movement:
    """Outcomes of the same windows in the same order."""
    shifts: list[float] = []
    for one, other in zip(left, right, strict=True):
        others = {item.token_ids: item.log_p for item in other.continuations}
        shifts += [_shift(item.log_p, others[item.token_ids]) for item in one.continuations if item.token_ids in others]
    bounds = [(one.bounds, other.bounds) for one, other in zip(left, right, strict=True)]
    return Movement(
        windows=len(left),
        largest_shift=max(shifts, default=math.nan),
        continuations_compared=len(shifts),
        verdicts_changed=sum(one.verdict(threshold) != other.verdict(threshold) for one, other in bounds),
        largest_lower_change=max((abs(one.lower[-1] - other.lower[-1]) for one, other in bounds), default=math.nan),
    )


def _search(
    model: TreeModel, windows: Sequence[Window], options: SearchOptions, *, slots: int, limits: Limits
) -> list[SearchOutcome]:
    tasks = []
    for key, window in enumerate(windows):
        probs = None
        if options.rank_by == "screen_score":
            (score,) = score_verbatim(model, [window], [options.policy], batch_windows=1)
            probs = score.target_probs
        tasks.append(SearchTask(key, window.prefix_ids, window.suffix_ids, probs, name=window.window_id))
    outcomes = {outcome.key: outcome for outcome in Engine(model, options, slots=slots, limits=limits).run(tasks)}
    return [outcomes[key] for key in range(len(windows))]


def _shift(before: float, after: float) -> float:
    return 0.0 if before == after else abs(before - after)
