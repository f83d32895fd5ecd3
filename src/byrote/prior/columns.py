"""What a prior run stores: a row a suffix with both probabilities, the ratio and the verdict, and totals of the rows.

Totals are counts by split and kind, the thresholds, examples, and the joined view of a scan's windows.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from byrote.prior.calibration import RatioThreshold
from byrote.prior.draws import DrawnPrefixes
from byrote.prior.items import PAIR_KIND, WINDOW_KIND, PriorItem, mask_identifiers, mask_whole
from byrote.prior.options import PriorConfig
from byrote.prior.verdicts import (
    PriorVerdict,
    default_least_conditional,
    log_interval,
    point_verdict,
    ratio_interval,
    ratio_verdict,
    settled_verdict,
    sound_log_interval,
)
from byrote.stats.clusters import rate_with_clusters
from byrote.stats.intervals import Rate
from byrote.stats.prior_mean import PriorEstimate, log_ratio
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Column, Schema, window_row
from byrote.types import Interval, Split
from byrote.verdict import Verdict

PRIOR_COLUMNS: Schema = (
    Column("kind", "text", is_required=True),
    Column("suffix_text", "text", is_required=True),
    Column("log_p_conditional", "float64", is_required=True),
    Column("log_p_prior", "float64", is_required=True),
    Column("prior_relative_error", "float64"),
    Column("prior_effective_prefixes", "float64"),
    Column("prior_largest_share", "float64"),
    Column("trial_log_priors", "list[float64]", is_required=True),
    Column("log_ratio", "float64", is_required=True),
    Column("log_ratio_low", "float64"),
    Column("log_ratio_high", "float64"),
    Column("interval_reason", "text"),
    Column("log_ratio_sound_low", "float64"),
    Column("log_ratio_sound_high", "float64"),
    Column("least_probability", "float64", is_required=True),
    Column("log_least_ratio", "float64"),
    Column("log_least_ratio_low", "float64"),
    Column("log_least_ratio_high", "float64"),
    Column("prior_verdict", "text", is_required=True),
    Column("is_settled", "bool", is_required=True),
    Column("point_verdict", "text", is_required=True),
    Column("ratio_verdict", "text", is_required=True),
)
SWEEP_COLUMNS: Schema = (
    Column("sweep_prefix_tokens", "list[int32]", is_required=True),
    Column("sweep_log_p_conditional", "list[float64]", is_required=True),
    Column("sweep_log_p_prior", "list[float64]", is_required=True),
    Column("sweep_prior_verdict", "list[text]", is_required=True),
    Column("sweep_point_verdict", "list[text]", is_required=True),
)
JOINED_COLUMNS: Schema = (Column("scan_verdict", "text"), Column("scan_p_verbatim", "float64"))


EXAMPLES = 5
COUNTED = (PriorVerdict.MEMORIZED, PriorVerdict.MERELY_LIKELY, PriorVerdict.UNSETTLED)

Row = Mapping[str, Any]
Decode = Callable[[Sequence[int]], str]


class LengthScores(NamedTuple):
    """What was found at one prefix length: conditionals and estimates in item order, n by suffix length."""

    prefix_tokens: int
    log_conditionals: list[float]
    estimates: list[PriorEstimate]
    thresholds: dict[int, RatioThreshold]
    distinct_prefixes: int


def prior_schema(*, is_sweep: bool, is_joined: bool) -> Schema:
    further = (*(SWEEP_COLUMNS if is_sweep else ()), *(JOINED_COLUMNS if is_joined else ()))
    return (*WINDOW_COLUMNS, *PRIOR_COLUMNS, *further, *COST_COLUMNS)


def least_probability(config: PriorConfig, suffix_tokens: int) -> float:
    """m for a suffix of this length."""
    if config.least_probability is not None:
        return config.least_probability
    return default_least_conditional(suffix_tokens)


class _Judged(NamedTuple):
    """One suffix at one prefix length against its thresholds."""

    log_conditional: float
    estimate: PriorEstimate
    threshold: RatioThreshold
    least_conditional: float
    log_ratio: float
    sound_ratio: Interval
    """What settles the verdict: the one interval that holds whatever the distribution of P(s|q)."""
    verdict: PriorVerdict
    point_verdict: PriorVerdict


def rows_of(
    items: Sequence[PriorItem], scores: Sequence[LengthScores], config: PriorConfig, *, decode: Decode
) -> list[dict[str, Any]]:
    """Rows in item order. The first of `scores` is the main prefix length; more of them make a sweep."""
    rows = []
    for place, item in enumerate(items):
        row = window_row(item.window) | {"kind": item.kind, "suffix_text": decode(item.window.suffix_ids)}
        judged = [_judge(len(item.window.suffix_ids), place, each, config) for each in scores]
        row |= _prior_columns(judged[0])
        if len(scores) > 1:
            row |= {
                "sweep_prefix_tokens": [each.prefix_tokens for each in scores],
                "sweep_log_p_conditional": [each.log_conditional for each in judged],
                "sweep_log_p_prior": [each.estimate.log_mean for each in judged],
                "sweep_prior_verdict": [str(each.verdict) for each in judged],
                "sweep_point_verdict": [str(each.point_verdict) for each in judged],
            }
        if config.run is not None:
            row |= {"scan_verdict": item.scan_verdict, "scan_p_verbatim": item.scan_p_verbatim}
        inner = len(item.window.suffix_ids) - 1
        row["token_evals"] = sum(len(item.window.ids) + inner * each.distinct_prefixes for each in scores)
        rows.append(row)
    return rows


def _judge(suffix_tokens: int, place: int, scores: LengthScores, config: PriorConfig) -> _Judged:
    own, estimate = scores.log_conditionals[place], scores.estimates[place]
    threshold, least = scores.thresholds[suffix_tokens], least_probability(config, suffix_tokens)
    ratio, sound = log_ratio(own, estimate.log_mean), ratio_interval(own, sound_log_interval(estimate))
    settled = settled_verdict(own, sound, threshold.interval, least_conditional=least)
    point = point_verdict(own, ratio, least_conditional=least, log_least_ratio=threshold.log_least_ratio)
    return _Judged(own, estimate, threshold, least, ratio, sound, settled, point)


def _prior_columns(judged: _Judged) -> dict[str, Any]:
    estimate, threshold = judged.estimate, judged.threshold
    sampled, sound = ratio_interval(judged.log_conditional, log_interval(estimate)), judged.sound_ratio
    statistics = {
        "prior_relative_error": estimate.relative_error,
        "prior_effective_prefixes": estimate.effective_prefixes,
        "prior_largest_share": estimate.largest_share,
        "log_ratio_low": sampled.low,
        "log_ratio_high": sampled.high,
        "log_ratio_sound_low": sound.low,
        "log_ratio_sound_high": sound.high,
        "log_least_ratio": threshold.log_least_ratio,
        "log_least_ratio_low": threshold.interval.low,
        "log_least_ratio_high": threshold.interval.high,
    }
    return {
        "log_p_conditional": judged.log_conditional,
        "log_p_prior": estimate.log_mean,
        "trial_log_priors": list(estimate.trial_log_means),
        "log_ratio": judged.log_ratio,
        "interval_reason": sampled.reason,
        "least_probability": judged.least_conditional,
        "prior_verdict": str(judged.verdict),
        "is_settled": judged.verdict is not PriorVerdict.UNSETTLED,
        "point_verdict": str(judged.point_verdict),
        "ratio_verdict": str(ratio_verdict(sound, threshold.interval)),
        # Parquet's null for an undefined statistic.
        **{name: None if math.isnan(value) else value for name, value in statistics.items()},
    }


def summarise(
    rows: Sequence[Row], scores: Sequence[LengthScores], drawn: DrawnPrefixes, *, decode: Decode
) -> dict[str, Any]:
    """Totals for the manifest; logarithms stay logarithms."""
    totals: dict[str, Any] = {
        "windows": len(rows),
        "reference": {
            "distinct_prefixes": len(drawn.prefixes),
            "draws": drawn.draws,
            "is_exhaustive": drawn.is_exhaustive,
        },
        "by_split": {split: _counts_by_kind(part) for split in Split if (part := _of(rows, "split", split))},
        "thresholds": [_threshold_entries(each, rows) for each in scores],
        "examples": _examples(rows, decode=decode),
    }
    if len(scores) > 1:
        totals["by_prefix_tokens"] = {
            str(each.prefix_tokens): _sweep_counts(rows, place) for place, each in enumerate(scores)
        }
    if "scan_verdict" in rows[0]:
        totals["joined"] = _joined(rows)
    return totals


def _counts_by_kind(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts of all, and of every kind where there is more than one."""
    kinds = dict.fromkeys(row["kind"] for row in rows)
    return {"all": _counts_of(rows), "by_kind": {kind: _counts_of(_of(rows, "kind", kind)) for kind in kinds}}


def _counts_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Suffixes with P(s|p) > m are memorized, merely likely or unsettled: the three add up to `extractable`."""
    found = Counter(row["prior_verdict"] for row in rows)
    point = Counter(row["point_verdict"] for row in rows)
    extractable = [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]
    memorized = _share_of(extractable, [row["prior_verdict"] == PriorVerdict.MEMORIZED for row in extractable])
    ratios = [row["log_ratio"] for row in rows if math.isfinite(row["log_ratio"])]
    effective = [row["prior_effective_prefixes"] for row in rows if row["prior_effective_prefixes"] is not None]
    return {
        "suffixes": len(rows),
        "extractable": len(extractable),
        **{str(verdict): found[verdict] for verdict in COUNTED},
        "memorized_share": _rate(memorized),
        "by_point_estimates": {str(verdict): point[verdict] for verdict in COUNTED},
        "median_log_ratio": float(np.median(ratios)) if ratios else math.nan,
        "median_effective_prefixes": float(np.median(effective)) if effective else math.nan,
    }


def _joined(rows: Sequence[Row]) -> dict[str, Any]:
    """Of the windows a scan calls extractable: how many are as likely after any prefix as after their own."""
    extractable = [row for row in rows if row["scan_verdict"] == Verdict.EXTRACTABLE]
    found = Counter(row["ratio_verdict"] for row in extractable)
    is_likely = [row["ratio_verdict"] == PriorVerdict.MERELY_LIKELY for row in extractable]
    return {
        "scan_extractable": len(extractable),
        "merely_likely": found[PriorVerdict.MERELY_LIKELY],
        "specific_to_their_prefix": found[PriorVerdict.MEMORIZED],
        "unsettled": found[PriorVerdict.UNSETTLED],
        "verbatim_probability_at_most_m": sum(
            row["prior_verdict"] == PriorVerdict.NOT_EXTRACTABLE for row in extractable
        ),
        "merely_likely_share": _rate(_share_of(extractable, is_likely)),
    }


def _share_of(rows: Sequence[Row], hits: Sequence[bool]) -> Rate:
    """The share of hits with an interval that counts documents or blocks, not overlapping windows."""
    spans = [row["char_end"] - row["char_start"] for row in rows]
    return rate_with_clusters(
        np.array(hits, dtype=float),
        [row["document"] for row in rows],
        [row["char_start"] for row in rows],
        window_chars=max(1, int(np.median(spans))) if spans else 1,
    )


def _examples(rows: Sequence[Row], *, decode: Decode) -> dict[str, list[dict[str, Any]]]:
    """Suffixes with P(s|p) > m and the lowest and the highest ratio, none of them twice."""
    kept = [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]
    ordered = sorted(kept, key=lambda row: row["log_ratio"])
    wanted = ("window_id", "kind", "split", "suffix_text", "log_p_conditional", "log_p_prior", "log_ratio")
    pick = [
        {name: row[name] for name in (*wanted, "prior_verdict")} | {"masked_text": _masked(row, decode=decode)}
        for row in ordered
    ]
    each = min(EXAMPLES, (len(pick) + 1) // 2)
    return {"lowest_ratio": pick[:each], "highest_ratio": pick[each:][::-1][:EXAMPLES]}


def _masked(row: Row, *, decode: Decode) -> str:
    """The suffix as a terminal may show it. Spans were named because they are personal: they are masked whole."""
    if row["kind"] in (WINDOW_KIND, PAIR_KIND):
        return mask_identifiers(row["suffix_text"], before=decode(row["prefix_ids"]))
    return mask_whole(row["suffix_text"])


def _sweep_counts(rows: Sequence[Row], place: int) -> dict[str, int]:
    found = Counter(row["sweep_prior_verdict"][place] for row in rows)
    counts = {str(verdict): found[verdict] for verdict in COUNTED}
    return {"extractable": sum(counts.values()), **counts}


def _threshold_entries(scores: LengthScores, rows: Sequence[Row]) -> dict[str, Any]:
    """n by suffix length, with what it rests on."""
    scored = Counter(len(row["suffix_ids"]) for row in rows)
    least = {len(row["suffix_ids"]): row["least_probability"] for row in rows}
    return {
        "prefix_tokens": scores.prefix_tokens,
        "by_suffix_tokens": {
            str(length): {
                "suffixes": scored[length],
                "least_probability": least[length],
                "log_least_ratio": threshold.log_least_ratio,
                "log_least_ratio_low": threshold.interval.low,
                "log_least_ratio_high": threshold.interval.high,
                "reason": threshold.interval.reason,
                "log_geometric_mean": threshold.log_geometric_mean,
                "log_median": threshold.log_median,
                "largest_share": threshold.largest_share,
                "generic_texts": len(threshold.log_ratios),
                "generic_log_ratios": list(threshold.log_ratios),
                "generic_texts_impossible": threshold.impossible,
                "generic_texts_unseen": threshold.unseen,
                "generic_suffix_tokens": threshold.calibrated_at_tokens,
            }
            for length, threshold in sorted(scores.thresholds.items())
        },
    }


def _of(rows: Sequence[Row], column: str, value: str) -> list[Row]:
    return [row for row in rows if row[column] == value]


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "value": rate.value,
        "low": rate.interval.low,
        "high": rate.interval.high,
        "reason": rate.interval.reason,
        "units": rate.units,
        "method": str(rate.method),
    }
