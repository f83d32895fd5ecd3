"""What a finished run adds up to: counts by split and verdict, token evaluations, and the audit of the screen."""

import math
from pathlib import Path
from typing import Any

import polars as pl

from rote.scan.options import RunConfig
from rote.scan.screen import Screen, screen_of
from rote.stats.audited import Stratum, expected_missed, missed_at_most
from rote.store.read import read_run

PAIRS_LISTED = 100
CONFIDENCE = 0.95


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
    # Rows come in the order in which they were measured; what is told must not depend on it.
    counted = shared.group_by("document", "shared_with").len()
    pairs = counted.sort("len", "document", "shared_with", descending=[True, False, False])
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
    """How many extractable windows the screen has missed, from the audited sample: expected, and at most."""
    screen = screen_of(config)
    if screen is None:
        return {"used": False}
    below = _rated_below(results, screen, config.threshold)
    strata = _strata(below, screen)
    not_searched = sum(stratum.left_out for stratum in strata)
    expected = expected_missed(strata)
    return {
        "used": True,
        "floor": screen.floor,
        "rated_below_floor": below.height,
        "searched_all_the_same": below.height - not_searched,
        "found_extractable_in_sample": sum(stratum.found for stratum in strata),
        "not_searched": not_searched,
        "missed_windows_expected": min(expected, not_searched) if math.isfinite(expected) else None,
        "missed_windows_at_most": missed_at_most(strata, level=CONFIDENCE),
        "confidence": CONFIDENCE,
        "reason": None if math.isfinite(expected) else "no screened window was searched, so nothing can be expected",
        "strata": [stratum._asdict() for stratum in strata],
    }


def _rated_below(results: pl.DataFrame, screen: Screen, threshold: float) -> pl.DataFrame:
    """Windows rated below the floor: density and key of their draw, whether drawn, and whether found by it alone."""
    below = results.filter(pl.col("was_screened"))
    drawn = list(zip(below["window_id"].to_list(), below["screen_rating"].to_list(), strict=True))
    return below.select(
        pl.Series("density", [screen.density(rating) for _, rating in drawn], dtype=pl.Float64),
        pl.Series("key", [screen.key(window_id, rating) for window_id, rating in drawn], dtype=pl.Float64),
        is_audited=pl.col("stop_reason") != "screened",
        # A window that the verbatim probability alone shows to be extractable is not lost by being screened.
        is_found=(pl.col("mass_lower").list.last() >= threshold) & (pl.col("mass_lower").list.first() < threshold),
    )


def _strata(below: pl.DataFrame, screen: Screen) -> list[Stratum]:
    """One for each density. A key is drawn when it is below the share or among the `least` smallest; for a window that
    was drawn, either way, this is: below the larger of the share and the smallest key that the minimum left out."""
    beyond_minimum = 0.0
    if screen.audit_least:
        keys = below["key"].sort()
        beyond_minimum = keys[screen.audit_least] if below.height > screen.audit_least else math.inf
    threshold = max(screen.audit_share, beyond_minimum)
    counted = below.group_by("density").agg(
        windows=pl.len(), audited=pl.col("is_audited").sum(), found=(pl.col("is_audited") & pl.col("is_found")).sum()
    )
    return [
        Stratum(windows, audited, found, min(1.0, density * threshold))
        for density, windows, audited, found in counted.sort("density").iter_rows()
    ]


def _counts(results: pl.DataFrame, column: str) -> dict[str, int]:
    counted = results[column].value_counts().sort(column)
    return {str(value): int(count) for value, count in counted.iter_rows()}
