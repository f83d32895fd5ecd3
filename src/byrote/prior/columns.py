"""What a prior run stores: a row a suffix with both probabilities, the ratio and the verdict, and totals of the rows.

Totals are counts by split and kind, the thresholds, examples, and the joined view of a scan's windows.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from byrote.corpus.spans import mask_identifiers, mask_whole
from byrote.prior import verdicts
from byrote.prior.calibration import RatioThreshold
from byrote.prior.draws import DrawnPrefixes
from byrote.prior.items import PAIR_KIND, WINDOW_KIND
from byrote.prior.options import PriorConfig
from byrote.prior.pool import PooledBalls, ball_ratio
from byrote.stats.clusters import rate_with_clusters
from byrote.stats.prior_mean import PriorEstimate, log_ratio
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Column, Schema, window_row
from byrote.types import Split, Window
from byrote.verdict import PriorVerdict, Verdict

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
BALL_COLUMNS: Schema = (
    Column("ball_mass_lower", "float64", is_required=True),
    Column("ball_mass_upper", "float64", is_required=True),
    Column("pool_hits", "int64", is_required=True),
    Column("ball_prior_low", "float64", is_required=True),
    Column("ball_prior_high", "float64", is_required=True),
    Column("log_ball_ratio", "float64", is_required=True),
    Column("log_ball_ratio_low", "float64", is_required=True),
    Column("log_ball_ratio_high", "float64", is_required=True),
    Column("log_ball_ratio_at_least", "float64", is_required=True),
    Column("ball_verdict", "text", is_required=True),
    Column("ball_point_verdict", "text", is_required=True),
    Column("ball_ratio_verdict", "text", is_required=True),
)

SWEPT = ("log_p_conditional", "log_p_prior", "prior_verdict", "point_verdict")
EXAMPLES = 5
EXAMPLE_COLUMNS = (
    "window_id", "kind", "split", "suffix_text", "log_p_conditional", "log_p_prior", "log_ratio", "prior_verdict",
    "point_verdict",
)  # fmt: skip
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


def prior_schema(*, is_sweep: bool, is_joined: bool, has_balls: bool) -> Schema:
    asked = ((SWEEP_COLUMNS, is_sweep), (JOINED_COLUMNS, is_joined), (BALL_COLUMNS, has_balls))
    further = (column for columns, is_asked in asked if is_asked for column in columns)
    return (*WINDOW_COLUMNS, *PRIOR_COLUMNS, *further, *COST_COLUMNS)


def least_probability(config: PriorConfig, suffix_tokens: int) -> float:
    """m for a suffix of this length."""
    if config.least_probability is not None:
        return config.least_probability
    return verdicts.default_least_conditional(suffix_tokens)


def rows_of(
    windows: Sequence[Window],
    scores: Sequence[LengthScores],
    config: PriorConfig,
    *,
    decode: Decode,
    balls: PooledBalls | None,
) -> list[dict[str, Any]]:
    """Rows in order of the windows. The first of `scores` is the main prefix length; more of them make a sweep."""
    rows = []
    for place, window in enumerate(windows):
        judged = [_judged(len(window.suffix_ids), place, each, config) for each in scores]
        row = window_row(window) | {"suffix_text": decode(window.suffix_ids)} | judged[0]
        if len(scores) > 1:
            row["sweep_prefix_tokens"] = [each.prefix_tokens for each in scores]
            row |= {f"sweep_{name}": [each[name] for each in judged] for name in SWEPT}
        if balls is not None:
            row |= _judged_ball(window, place, balls, config)
        inner = len(window.suffix_ids) - 1
        row["token_evals"] = sum(len(window.ids) + inner * each.distinct_prefixes for each in scores)
        rows.append(row)
    return rows


def _judged(suffix_tokens: int, place: int, scores: LengthScores, config: PriorConfig) -> dict[str, Any]:
    """The columns of one suffix at one prefix length, against its thresholds."""
    log_p, estimate = scores.log_conditionals[place], scores.estimates[place]
    threshold, least = scores.thresholds[suffix_tokens], least_probability(config, suffix_tokens)
    ratio = log_ratio(log_p, estimate.log_mean)
    sampled = verdicts.ratio_interval(log_p, verdicts.log_interval(estimate))
    # What settles the verdict: the one interval that holds whatever the distribution of P(s|q).
    sound = verdicts.ratio_interval(log_p, verdicts.sound_log_interval(estimate))
    verdict = verdicts.settled_verdict(log_p, sound, threshold.interval, least_conditional=least)
    point = verdicts.point_verdict(log_p, ratio, least_conditional=least, log_least_ratio=threshold.log_least_ratio)
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
        "log_p_conditional": log_p,
        "log_p_prior": estimate.log_mean,
        "trial_log_priors": list(estimate.trial_log_means),
        "log_ratio": ratio,
        "interval_reason": sampled.reason,
        "least_probability": least,
        "prior_verdict": str(verdict),
        "is_settled": verdict is not PriorVerdict.UNSETTLED,
        "point_verdict": str(point),
        "ratio_verdict": str(verdicts.ratio_verdict(sound, threshold.interval)),
        # Parquet's null for an undefined statistic.
        **{name: None if math.isnan(value) else value for name, value in statistics.items()},
    }


def _judged_ball(window: Window, place: int, balls: PooledBalls, config: PriorConfig) -> dict[str, Any]:
    """The columns of a window's ball: certified bounds of P(ball | p) against the pool. Its point estimate is that of
    the lower bound."""
    lower, upper = window.further["ball_mass_lower"], window.further["ball_mass_upper"]
    hits, tokens = balls.hits[place], len(window.suffix_ids)
    threshold, least = balls.thresholds[tokens], least_probability(config, tokens)
    prior = balls.prior(hits)
    ratio = ball_ratio(lower, upper, prior)
    log_lower = math.log(lower) if lower else -math.inf
    point = log_ratio(log_lower, math.log(hits / balls.members) if hits else -math.inf)
    verdict = verdicts.settled_verdict(log_lower, ratio, threshold.interval, least_conditional=least)
    point_verdict = verdicts.point_verdict(
        log_lower, point, least_conditional=least, log_least_ratio=threshold.log_least_ratio
    )
    return {
        "pool_hits": hits,
        "ball_prior_low": prior.low,
        "ball_prior_high": prior.high,
        "log_ball_ratio": point,
        "log_ball_ratio_low": ratio.low,
        "log_ball_ratio_high": ratio.high,
        # One-sided: no upper limit shares the chance of error.
        "log_ball_ratio_at_least": log_lower - math.log(balls.prior(hits, level=2 * verdicts.LEVEL - 1).high),
        "ball_verdict": str(verdict),
        "ball_point_verdict": str(point_verdict),
        "ball_ratio_verdict": str(verdicts.ratio_verdict(ratio, threshold.interval)),
    }


def summarise(
    rows: Sequence[Row],
    scores: Sequence[LengthScores],
    drawn: DrawnPrefixes,
    *,
    decode: Decode,
    balls: PooledBalls | None,
) -> dict[str, Any]:
    """Totals for the manifest; logarithms stay logarithms."""
    totals: dict[str, Any] = {
        "windows": len(rows),
        "reference": {
            "distinct_prefixes": len(drawn.prefixes),
            "draws": drawn.draws,
            "is_exhaustive": drawn.is_exhaustive,
            "independent_prefixes": drawn.independent,
        },
        "by_split": {},
        "thresholds": [_threshold_entries(each, rows) for each in scores],
        "examples": _examples(rows, decode=decode),
    }
    for split in Split:
        if part := [row for row in rows if row["split"] == split]:
            kinds = dict.fromkeys(row["kind"] for row in part)
            by_kind = {kind: _counts_of([row for row in part if row["kind"] == kind]) for kind in kinds}
            totals["by_split"][split] = {"all": _counts_of(part), "by_kind": by_kind}
    if len(scores) > 1:
        totals["by_prefix_tokens"] = {
            str(each.prefix_tokens): _verdict_counts(row["sweep_prior_verdict"][place] for row in rows)
            | {"published_memorized": sum(r["sweep_point_verdict"][place] == PriorVerdict.MEMORIZED for r in rows)}
            for place, each in enumerate(scores)
        }
    no_threshold = None if balls is None else next((n.interval.reason for n in balls.thresholds.values()), None)
    if "scan_verdict" in rows[0]:
        # A near-verbatim verdict is about the ball.
        totals["joined"] = _joined(rows, by_ball=balls is not None and no_threshold is None)
    if balls is not None:
        totals["balls"] = {
            "edits": balls.ball.edits,
            "policy": balls.ball.policy.describe(),
            "members": balls.members,
            "independent_members": balls.independent,
            "largest_shown_ratio": 1.0 / balls.prior(0, level=2 * verdicts.LEVEL - 1).high,
            "no_threshold": no_threshold,
            "by_split": _ball_counts(rows, balls.ball.threshold),
        }
    return totals


def _verdict_counts(names: Iterable[str]) -> dict[str, int]:
    """Suffixes with P(s|p) > m are memorized, merely likely or unsettled: the three add up to `extractable`."""
    found = Counter(names)
    counts = {str(verdict): found[verdict] for verdict in COUNTED}
    return {"extractable": sum(counts.values()), **counts}


def _counts_of(rows: Sequence[Row]) -> dict[str, Any]:
    point = _verdict_counts(row["point_verdict"] for row in rows)
    ratios = [row["log_ratio"] for row in rows if math.isfinite(row["log_ratio"])]
    return {
        "suffixes": len(rows),
        **_verdict_counts(row["prior_verdict"] for row in rows),
        "memorized_share": _share_of(_extractable(rows), "prior_verdict", PriorVerdict.MEMORIZED),
        "by_point_estimates": {str(verdict): point[verdict] for verdict in COUNTED},
        "median_log_ratio": float(np.median(ratios)) if ratios else math.nan,
    }


def _ball_counts(rows: Sequence[Row], threshold: float) -> dict[str, Any]:
    """By split: of all windows, and of those that the scan found extractable only nearly."""
    found: dict[str, Any] = {}
    for split in dict.fromkeys(row["split"] for row in rows):
        every = [row for row in rows if row["split"] == split]
        nearly = [
            row
            for row in every
            if row["scan_verdict"] == Verdict.EXTRACTABLE and (row["scan_p_verbatim"] or 0.0) < threshold
        ]
        found[split] = {
            name: {
                "suffixes": len(part),
                **_verdict_counts(row["ball_verdict"] for row in part),
                "by_point_estimates": _verdict_counts(row["ball_point_verdict"] for row in part),
                "without_hit": sum(row["pool_hits"] == 0 for row in part),
                "median_log_ratio_at_least": float(np.median([row["log_ball_ratio_at_least"] for row in part])),
            }
            for name, part in (("all", every), ("extractable only nearly", nearly))
            if part
        }
    return found


def _extractable(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["prior_verdict"] != PriorVerdict.NOT_EXTRACTABLE]


def _joined(rows: Sequence[Row], *, by_ball: bool) -> dict[str, Any]:
    """Of the windows a scan calls extractable: how many are as likely after any prefix as after their own, by the ball
    or by the exact suffix."""
    extractable = [row for row in rows if row["scan_verdict"] == Verdict.EXTRACTABLE]
    ratio, point = (f"{'ball_' if by_ball else ''}{kind}_verdict" for kind in ("ratio", "point"))
    found, published = Counter(row[ratio] for row in extractable), Counter(row[point] for row in extractable)
    return {
        "is_by_ball": by_ball,
        "scan_extractable": len(extractable),
        "merely_likely": found[PriorVerdict.MERELY_LIKELY],
        "specific_to_their_prefix": found[PriorVerdict.MEMORIZED],
        "unsettled": found[PriorVerdict.UNSETTLED],
        "published_memorized": published[PriorVerdict.MEMORIZED],
        "published_merely_likely": published[PriorVerdict.MERELY_LIKELY],
        "verbatim_probability_at_most_m": len(extractable) - len(_extractable(extractable)),
        "merely_likely_share": _share_of(extractable, ratio, PriorVerdict.MERELY_LIKELY),
    }


def _share_of(rows: Sequence[Row], column: str, verdict: PriorVerdict) -> dict[str, Any]:
    """The share with this verdict, its interval over documents or blocks, not over overlapping windows."""
    spans = [row["char_end"] - row["char_start"] for row in rows]
    rate = rate_with_clusters(
        np.array([row[column] == verdict for row in rows], dtype=float),
        [row["document"] for row in rows],
        [row["char_start"] for row in rows],
        window_chars=max(1, int(np.median(spans))) if spans else 1,
    )
    return {
        "value": rate.value,
        "low": rate.interval.low,
        "high": rate.interval.high,
        "reason": rate.interval.reason,
        "units": rate.units,
        "method": str(rate.method),
    }


def _examples(rows: Sequence[Row], *, decode: Decode) -> dict[str, list[dict[str, Any]]]:
    """Suffixes with P(s|p) > m and the lowest and the highest ratio, none of them twice."""
    ordered = sorted(_extractable(rows), key=lambda row: row["log_ratio"])
    each = min(EXAMPLES, (len(ordered) + 1) // 2)
    chosen = {"lowest_ratio": ordered[:each], "highest_ratio": ordered[each:][::-1][:EXAMPLES]}
    return {
        name: [
            {column: row[column] for column in EXAMPLE_COLUMNS} | {"masked_text": _masked(row, decode)} for row in some
        ]
        for name, some in chosen.items()
    }


def _masked(row: Row, decode: Decode) -> str:
    """The suffix as a terminal may show it. Spans were named because they are personal: they are masked whole."""
    if row["kind"] in (WINDOW_KIND, PAIR_KIND):
        return mask_identifiers(row["suffix_text"], before=decode(row["prefix_ids"]))
    return mask_whole(row["suffix_text"])


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
