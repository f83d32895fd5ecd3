"""What a finished run adds up to: counts by split and verdict, token evaluations, and the audit of the screen."""

import math
from pathlib import Path
from typing import Any

import polars as pl

from byrote.scan.options import RunConfig
from byrote.scan.screen import DENSITY_NEAR_FLOOR, NEAR_FLOOR, Screen, screen_of
from byrote.stats.limits import Stratum, expected_missed, missed_at_most
from byrote.store.read import read_run

PAIRS_LISTED = 100
CONFIDENCE = 0.95
MEANING = (
    "would_be_certified: windows among those not searched that a search with these options would have certified as "
    "extractable. Windows that a search would have left undecided are not counted; they may be extractable too."
)


def totals_of(path: Path, config: RunConfig) -> dict[str, Any]:
    """Totals over the rows stored so far; rows are counted where they lie, never held."""
    results = read_run(path).scan_results()
    windows, token_evals = _collected(results.select(pl.len(), pl.col("token_evals").sum())).row(0)
    totals: dict[str, Any] = {
        "windows": windows,
        "token_evals": token_evals,
        "windows_by_split": _counts(results, "split"),
    }
    if "shared_with" in results.collect_schema().names():
        totals["shared"] = shared_totals(results, config)
    if "near" in config.measures:
        totals["verdicts"] = {
            split: _counts(results.filter(pl.col("split") == split), "verdict") for split in totals["windows_by_split"]
        }
        totals["stop_reasons"] = _counts(results, "stop_reason")
        totals["screen"] = screen_audit(results, config)
    return totals


def count_by(path: Path, column: str) -> dict[str, int]:
    """Rows stored so far, by the value of a column."""
    return _counts(read_run(path).scan_results(), column)


def shared_totals(results: pl.LazyFrame, config: RunConfig) -> dict[str, Any]:
    """Control windows whose passage a target holds too: how many, between which documents, and whether they count."""
    controls = results.filter(pl.col("split") == "control")
    shared = controls.filter(pl.col("shared_with").is_not_null())
    # Rows come in the order in which they were measured; totals must not depend on it.
    counted = shared.group_by("document", "shared_with").len()
    pairs = _collected(counted.sort("len", "document", "shared_with", descending=[True, False, False]))
    listed = [
        {"control": control, "target": target, "windows": windows}
        for control, target, windows in pairs.head(PAIRS_LISTED).iter_rows()
    ]
    return {
        "control_windows": int(_collected(controls.select(pl.len())).item()),
        "windows": int(pairs["len"].sum()),
        "are_counted": config.keep_shared,
        "pairs": listed,
        "pairs_not_listed": pairs.height - len(listed),
    }


def screen_audit(results: pl.LazyFrame, config: RunConfig) -> dict[str, Any]:
    """How many of the windows not searched a search would have certified: expected and at most, from those audited.

    It does not cover windows that are extractable and that a search would have left undecided.
    """
    screen = screen_of(config)
    if screen is None:
        return {"used": False}
    strata = _strata(results.filter(pl.col("was_screened")), screen, config.threshold)
    below_floor = sum(stratum.windows for stratum in strata)
    not_searched = sum(stratum.left_out for stratum in strata)
    expected = expected_missed(strata)
    return {
        "used": True,
        "floor": screen.floor,
        "rated_below_floor": below_floor,
        "searched_all_the_same": below_floor - not_searched,
        "certified_in_sample": sum(stratum.found for stratum in strata),
        "not_searched": not_searched,
        "would_be_certified_expected": min(expected, not_searched) if math.isfinite(expected) else None,
        "would_be_certified_at_most": missed_at_most(strata, level=CONFIDENCE),
        "confidence": CONFIDENCE,
        "meaning": MEANING,
        "reason": None if math.isfinite(expected) else "no screened window was searched, so nothing can be expected",
        "strata": [stratum._asdict() for stratum in strata],
    }


def _strata(below: pl.LazyFrame, screen: Screen, threshold: float) -> list[Stratum]:
    """Windows below the floor, one stratum for each density of the draw."""
    is_audited = pl.col("stop_reason") != "screened"
    # A window that the verbatim probability alone shows to be extractable is not lost by being screened.
    is_found = (pl.col("mass_lower").list.last() >= threshold) & (pl.col("mass_lower").list.first() < threshold)
    is_near = (pl.col("screen_score") >= NEAR_FLOOR * screen.floor).alias("is_near")
    counted = below.group_by(is_near).agg(
        windows=pl.len(), audited=is_audited.sum(), found=(is_audited & is_found).sum()
    )
    found = _collected(counted.sort("is_near"))
    return [
        Stratum(windows, audited, found, min(1.0, (DENSITY_NEAR_FLOOR if is_near else 1.0) * screen.audit_share))
        for is_near, windows, audited, found in found.iter_rows()
    ]


def _counts(results: pl.LazyFrame, column: str) -> dict[str, int]:
    counted = _collected(results.group_by(column).len().sort(column))
    return {str(value): int(count) for value, count in counted.iter_rows()}


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    collected = frame.collect()
    assert isinstance(collected, pl.DataFrame)
    return collected
