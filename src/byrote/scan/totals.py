"""What a finished run adds up to: counts by split and verdict, token evaluations, and the audit of the screen."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from byrote.models.base import LanguageModel
from byrote.scan.membership import reference_hash
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Facts
from byrote.scan.screen import DENSITY_NEAR_FLOOR, NEAR_FLOOR, Screen, screen_of
from byrote.scan.source import Source
from byrote.stats.limits import Stratum, expected_missed, missed_at_most
from byrote.store.read import read_run
from byrote.types import Split

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


def windows_by_split(path: Path) -> dict[Split, int]:
    """Of the rows stored so far."""
    return {Split(name): count for name, count in _counts(read_run(path).scan_results(), "split").items()}


def windows_by_document(path: Path) -> dict[str, int]:
    return _counts(read_run(path).scan_results(), "document")


def shared_totals(results: pl.LazyFrame, config: RunConfig) -> dict[str, Any]:
    """Control windows whose passage a target holds too: how many, between which documents, and whether they count."""
    controls = results.filter(pl.col("split") == "control")
    shared = controls.filter(pl.col("shared_with").is_not_null())
    # Rows come in the order in which they were measured; what is told must not depend on it.
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

    It says nothing of windows that are extractable and that a search would have left undecided.
    """
    screen = screen_of(config)
    if screen is None:
        return {"used": False}
    below = results.filter(pl.col("was_screened"))
    strata = _strata(below, screen, config.threshold)
    rated_below = sum(stratum.windows for stratum in strata)
    not_searched = sum(stratum.left_out for stratum in strata)
    expected = expected_missed(strata)
    return {
        "used": True,
        "floor": screen.floor,
        "rated_below_floor": rated_below,
        "searched_all_the_same": rated_below - not_searched,
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
    """Windows rated below the floor, one stratum for each density of the draw."""
    is_audited = pl.col("stop_reason") != "screened"
    # A window that the verbatim probability alone shows to be extractable is not lost by being screened.
    is_found = (pl.col("mass_lower").list.last() >= threshold) & (pl.col("mass_lower").list.first() < threshold)
    is_near = (pl.col("screen_rating") >= NEAR_FLOOR * screen.floor).alias("is_near")
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


def run_identity(model: LanguageModel, source: Source, config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same run: options, model, texts or pairs. Where and in which batches it runs does not."""
    identity: dict[str, Any] = {
        "config": config.identity(),
        "model": model.identity.fingerprint,
        "texts": {f"{document.split}:{document.name}": document.content_hash for document in source.documents},
    }
    further = {"pairs": source.pairs_hash, "shard": config.shard, "reference": reference_hash(config)}
    return identity | {name: value for name, value in further.items() if value is not None}


def texts_section(
    source: Source,
    windows: Mapping[str, int],
    short: Mapping[str, int],
    facts: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    copies: dict[str, set[int | None]] = {}
    for window in source.pairs or ():
        copies.setdefault(window.document, set()).add(window.further.get("copies"))
    return {
        document.name: {
            "split": str(document.split),
            "content_hash": document.content_hash,
            "characters": document.characters,
            "windows": windows.get(document.name, 0),
            "short_windows": short.get(document.name, 0),
            **_known_copies(copies.get(document.name, set())),
            **facts.get(document.name, {}),
        }
        for document in source.documents
    }


def _known_copies(copies: set[int | None]) -> dict[str, int]:
    """A document's copies in training, where its windows agree on a number."""
    known = copies - {None}
    return {"copies": known.pop()} if len(copies) == 1 and known else {}  # type: ignore[dict-item]


def device_section(model: LanguageModel, facts: Facts) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu"
    return {
        "name": name,
        "threads": torch.get_num_threads(),
        "slots": facts.slots,
        "peak_entries_per_slot": facts.peak_entries,
        "bytes_per_entry": model.tree_bytes_per_entry() if facts.slots else None,
        "tree_search": model.searches_trees if facts.slots else None,
        "forwards": facts.forwards,
    }
