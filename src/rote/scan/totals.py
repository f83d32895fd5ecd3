"""What a finished run adds up to: counts by split and verdict, token evaluations, and the audit of the screen."""

from pathlib import Path
from typing import Any

import polars as pl

from rote.scan.options import RunConfig
from rote.stats.intervals import RateMethod, rate
from rote.store.read import read_run

PAIRS_LISTED = 100


def totals_of(path: Path, config: RunConfig) -> dict[str, Any]:
    """Totals over the rows stored so far."""
    results = read_run(path).results
    totals: dict[str, Any] = {
        "windows": results.height,
        "token_evals": int(results["token_evals"].sum()),
        "windows_by_split": _counts(results, "split"),
    }
    if "shared_with" in results.columns:
        totals["shared"] = shared_totals(results, config)
    if "near" in config.measures:
        totals["verdicts"] = {
            str(split): _counts(results.filter(pl.col("split") == split), "verdict")
            for split in results["split"].unique().sort()
        }
        totals["stop_reasons"] = _counts(results, "stop_reason")
        totals["screen"] = screen_audit(results, config)
    return totals


def windows_audited(path: Path) -> int:
    """Screened windows that a run has searched so far."""
    results = read_run(path).results
    if results.is_empty() or "was_screened" not in results.columns:
        return 0
    return results.filter(pl.col("was_screened") & (pl.col("stop_reason") != "screened")).height


def shared_totals(results: pl.DataFrame, config: RunConfig) -> dict[str, Any]:
    """Control windows whose passage a target holds too: how many, between which documents, and whether they count."""
    controls = results.filter(pl.col("split") == "control")
    shared = controls.filter(pl.col("shared_with").is_not_null())
    pairs = shared.group_by("document", "shared_with", maintain_order=True).len()
    listed = [
        {"control": control, "target": target, "windows": windows}
        for control, target, windows in pairs.head(PAIRS_LISTED).iter_rows()
    ]
    return {
        "control_windows": controls.height,
        "windows": shared.height,
        "are_counted": config.keep_shared,
        "pairs": listed,
        "pairs_not_listed": pairs.height - len(listed),
    }


def screen_audit(results: pl.DataFrame, config: RunConfig) -> dict[str, Any]:
    """How many extractable windows a screen of this kind can have missed, from the searched sample of screened ones."""
    if config.screen == "off":
        return {"used": False}
    rated_below = results.filter(pl.col("was_screened"))
    sampled = rated_below.filter(pl.col("stop_reason") != "screened")
    unsearched = rated_below.height - sampled.height
    # A window the verbatim probability alone shows to be extractable is not lost by being screened.
    missed = sampled.filter(
        (pl.col("mass_lower").list.last() >= config.threshold) & ~_is_verbatim_extractable(sampled, config.threshold)
    ).height
    share = rate(missed, sampled.height, method=RateMethod.EXACT)
    return {
        "used": True,
        "floor": config.screen_floor,
        "rated_below_floor": rated_below.height,
        "searched_all_the_same": sampled.height,
        "found_extractable_in_sample": missed,
        "not_searched": unsearched,
        "missed_share_low": share.interval.low,
        "missed_share_high": share.interval.high,
        "missed_windows_at_most": share.interval.high * unsearched,
        "confidence": share.interval.level,
        "reason": share.interval.reason,
    }


def _is_verbatim_extractable(results: pl.DataFrame, threshold: float) -> pl.Expr:
    if "p_verbatim" in results.columns:
        return pl.col("p_verbatim") >= threshold
    return pl.lit(False)


def _counts(results: pl.DataFrame, column: str) -> dict[str, int]:
    counted = results[column].value_counts().sort(column)
    return {str(value): int(count) for value, count in counted.iter_rows()}
