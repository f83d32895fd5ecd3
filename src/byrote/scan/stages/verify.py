"""How far do numbers move with rounding? No bound is changed by looking.

`--verify` re-scores accepted mass in float32. `self_check` searches some windows alone, in a batch and in float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from byrote.models.base import TreeModel
from byrote.models.scoring import require_numbers, score_verbatim
from byrote.policy import Policy
from byrote.scan.measures.base import Measured
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask, target_chars
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
    scores = model.score([window.context_ids + item.token_ids for item in chosen], len(window.suffix_ids), [policy])
    again = scores.log_probs[0].sum(-1).tolist()
    require_numbers(again, model.dtype, what=f"continuations of window {window.window_id}")
    # −inf twice is no shift.
    shifts = [0.0 if one.log_p == log_p else abs(one.log_p - log_p) for one, log_p in zip(chosen, again, strict=True)]
    return VerifiedMass(
        verified_mass=math.fsum(math.exp(log_p) for log_p in again),
        # The search and the first forward round differently: all of it may come out a hair above the bound.
        share_of_lower=min(1.0, covered / lower) if lower > 0 else math.nan,
        largest_shift=max(shifts),
        token_evals=len(chosen) * len(window.ids),
    )


def verify_found(item: Measured, model: TreeModel, policy: Policy) -> None:
    """Re-score what a searched window has accepted, in float32."""
    if item.near is None or item.near.outcome is None:
        return
    lower = item.near.bounds.lower
    # The baseline accepts continuations beyond the budget too, which the lower bound does not count.
    found = [one for one in item.near.outcome.continuations if one.distance < len(lower)]
    if found:
        item.verified = verify(model.in_float32, item.window, found, policy=policy, lower=lower[-1])


def self_check(
    model: TreeModel, windows: Sequence[Window], options: SearchOptions, *, threshold: float, slots: int, limits: Limits
) -> dict[str, Any]:
    """How the same windows differ searched alone and in a batch, in the run's precision and in float32."""
    alone = searched(model, windows, options, slots=1, limits=limits)
    together = searched(model, windows, options, slots=slots, limits=limits)
    exact = searched(model.in_float32, windows, options, slots=1, limits=limits)
    return {
        "slots": slots,
        "alone_against_batch": movement(alone, together, threshold),
        "run_precision_against_float32": movement(alone, exact, threshold),
    }


def movement(left: Sequence[SearchOutcome], right: Sequence[SearchOutcome], threshold: float) -> dict[str, Any]:
    """How outcomes of the same windows, in the same order, differ. NaN where nothing can be compared."""
    shifts: list[float] = []
    changes: list[float] = []
    verdicts = 0
    for one, other in zip(left, right, strict=True):
        known = {found.token_ids: found.log_p for found in other.continuations}
        both = [(found.log_p, known[found.token_ids]) for found in one.continuations if found.token_ids in known]
        shifts += [0.0 if before == after else abs(before - after) for before, after in both]
        changes.append(abs(one.bounds.lower[-1] - other.bounds.lower[-1]))
        verdicts += one.bounds.verdict(threshold) != other.bounds.verdict(threshold)
    return {
        "windows": len(left),
        "largest_shift": max(shifts, default=math.nan),
        "continuations_compared": len(shifts),
        "verdicts_changed": verdicts,
        "largest_lower_change": max(changes, default=math.nan),
    }


def searched(
    model: TreeModel, windows: Sequence[Window], options: SearchOptions, *, slots: int, limits: Limits
) -> list[SearchOutcome]:
    """Outcomes of these windows in their order, ranked as in the run."""
    tasks = []
    for key, window in enumerate(windows):
        probs = None
        if options.rank_by == "screen_score":
            (score,) = score_verbatim(model, [window], [options.policy], batch_windows=1)
            probs = score.target_probs
        target = target_chars(window.suffix_text)
        tasks.append(
            SearchTask(key, window.context_ids, window.suffix_ids, probs, name=window.window_id, target_chars=target)
        )
    return sorted(Engine(model, options, slots=slots, limits=limits).run(tasks), key=lambda outcome: outcome.key)
