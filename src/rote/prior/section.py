"""What a prior run adds up to: counts by kind and prefix length, thresholds, examples, the joined view, figures."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rote.errors import StorageError
from rote.prior.columns import LengthScores
from rote.prior.options import PriorConfig
from rote.report.figures.prior import PriorShare, prior_scatter, prior_shares
from rote.report.figures.style import save_bytes
from rote.stats.clustered import rate_with_clusters
from rote.stats.intervals import Rate
from rote.stats.prior_mean import PriorVerdict
from rote.store.atomic import atomic_file
from rote.types import Verdict

Row = Mapping[str, Any]
EXAMPLES = 5


def summarise(rows: Sequence[Row], scores: Sequence[LengthScores], config: PriorConfig) -> dict[str, Any]:
    """Totals for the manifest; logarithms stay logarithms."""
    kinds = dict.fromkeys(row["kind"] for row in rows)
    totals: dict[str, Any] = {
        "windows": len(rows),
        "prior_draws": config.prior_prefixes * config.trials,
        "all": counts_of(rows),
        "by_kind": {kind: counts_of([row for row in rows if row["kind"] == kind]) for kind in kinds},
        "thresholds": [_thresholds(each) for each in scores],
        "examples": examples(rows),
    }
    if len(scores) > 1:
        totals["by_prefix_tokens"] = {
            str(each.prefix_tokens): _sweep_counts(rows, place) for place, each in enumerate(scores)
        }
    if config.run is not None:
        totals["joined"] = joined(rows)
    return totals


def counts_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Extractable, memorized and merely likely, with the share of extractable suffixes that are memorized."""
    found = Counter(row["prior_verdict"] for row in rows)
    extractable = [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]
    memorized = share_of(extractable, [row["prior_verdict"] == PriorVerdict.MEMORIZED for row in extractable])
    ratios = [row["log_ratio"] for row in rows if math.isfinite(row["log_ratio"])]
    return {
        "suffixes": len(rows),
        "extractable": len(extractable),
        "memorized": found[PriorVerdict.MEMORIZED],
        "merely_likely": found[PriorVerdict.MERELY_LIKELY],
        "unsettled": sum(not row["is_settled"] for row in rows),
        "memorized_share": _rate(memorized),
        "median_log_ratio": float(np.median(ratios)) if ratios else math.nan,
        "median_effective_prefixes": float(np.median([row["prior_effective_prefixes"] or math.nan for row in rows])),
    }


def joined(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the windows a scan calls extractable: how many are as likely after any prefix as after their own."""
    extractable = [row for row in rows if row["scan_verdict"] == Verdict.EXTRACTABLE]
    is_likely = [row["log_ratio"] <= row["log_least_ratio"] for row in extractable]
    return {
        "scan_extractable": len(extractable),
        "merely_likely": sum(is_likely),
        "specific_to_their_prefix": len(is_likely) - sum(is_likely),
        "verbatim_probability_at_most_m": sum(
            row["prior_verdict"] == PriorVerdict.NOT_EXTRACTABLE for row in extractable
        ),
        "merely_likely_share": _rate(share_of(extractable, is_likely)),
    }


def share_of(rows: Sequence[Row], hits: Sequence[bool]) -> Rate:
    """The share of hits with an interval that counts documents or blocks, not overlapping windows."""
    spans = [row["char_end"] - row["char_start"] for row in rows]
    return rate_with_clusters(
        np.array(hits, dtype=float),
        [row["document"] for row in rows],
        [row["char_start"] for row in rows],
        window_chars=max(1, int(np.median(spans))) if spans else 1,
    )


def examples(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """Extractable suffixes with the lowest and the highest ratio."""
    kept = [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]
    ordered = sorted(kept, key=lambda row: row["log_ratio"])
    wanted = ("window_id", "kind", "suffix_text", "log_p_conditional", "log_p_prior", "log_ratio")
    pick = [{name: row[name] for name in wanted} for row in ordered]
    return {"lowest_ratio": pick[:EXAMPLES], "highest_ratio": pick[::-1][:EXAMPLES]}


def write_figures(folder: Path, rows: Sequence[Row], scores: Sequence[LengthScores], config: PriorConfig) -> None:
    """`report/figures/prior_scatter` and, for a sweep, `prior_by_prefix_length`, as SVG and PNG."""
    tokens, _ = Counter(len(row["suffix_ids"]) for row in rows).most_common(1)[0]
    shown = [row for row in rows if len(row["suffix_ids"]) == tokens]
    figures = {
        "prior_scatter": prior_scatter(
            np.array([row["log_p_conditional"] for row in shown]),
            np.array([row["log_p_prior"] for row in shown]),
            least_conditional=max(shown[0]["least_probability"], 1e-300),
            least_ratio=math.exp(min(max(shown[0]["log_least_ratio"], -690.0), 690.0)),
            title=f"Suffixes of {tokens} tokens",
        )
    }
    if len(scores) > 1:
        figures["prior_by_prefix_length"] = prior_shares(
            [
                _share(rows, place, each.prefix_tokens)
                for place, each in sorted(enumerate(scores), key=lambda entry: entry[1].prefix_tokens)
            ],
            title="By prefix length",
        )
    place = folder / "report" / "figures"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot make {place}: {error.strerror}.") from error
    for name, figure in figures.items():
        for kind in ("svg", "png"):
            with atomic_file(place / f"{name}.{kind}") as file:
                file.write(save_bytes(figure, kind))


def _share(rows: Sequence[Row], place: int, prefix_tokens: int) -> PriorShare:
    counts = _sweep_counts(rows, place)
    return PriorShare(f"{prefix_tokens} tokens", len(rows), counts["extractable"], counts["memorized"])


def _sweep_counts(rows: Sequence[Row], place: int) -> dict[str, int]:
    found = Counter(row["sweep_prior_verdict"][place] for row in rows)
    memorized, likely = found[PriorVerdict.MEMORIZED], found[PriorVerdict.MERELY_LIKELY]
    return {"extractable": memorized + likely, "memorized": memorized, "merely_likely": likely}


def _thresholds(scores: LengthScores) -> dict[str, Any]:
    return {
        "prefix_tokens": scores.prefix_tokens,
        "by_suffix_tokens": {
            str(length): {
                "log_least_ratio": threshold.log_least_ratio,
                "log_geometric_mean": threshold.log_geometric_mean,
                "generic_texts": None if threshold.log_ratios is None else len(threshold.log_ratios),
                "generic_suffix_tokens": threshold.calibrated_at_tokens,
            }
            for length, threshold in sorted(scores.thresholds.items())
        },
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "value": rate.value,
        "low": rate.interval.low,
        "high": rate.interval.high,
        "reason": rate.interval.reason,
        "units": rate.units,
        "method": str(rate.method),
    }
