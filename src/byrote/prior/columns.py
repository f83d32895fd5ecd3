"""One row a suffix: both probabilities, the ratio with its interval, the thresholds and the verdict."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from byrote.prior.calibration import RatioThreshold
from byrote.prior.items import PriorItem
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
from byrote.stats.prior_mean import PriorEstimate, log_ratio
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Column, Schema, window_row
from byrote.types import Interval

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
    sound_ratio: Interval
    """What settles the verdict: the one interval that holds whatever the distribution of P(s|q)."""

    @property
    def log_ratio(self) -> float:
        return log_ratio(self.log_conditional, self.estimate.log_mean)

    @property
    def verdict(self) -> PriorVerdict:
        return settled_verdict(
            self.log_conditional, self.sound_ratio, self.threshold.interval, least_conditional=self.least_conditional
        )

    @property
    def point_verdict(self) -> PriorVerdict:
        return point_verdict(
            self.log_conditional,
            self.log_ratio,
            least_conditional=self.least_conditional,
            log_least_ratio=self.threshold.log_least_ratio,
        )


def rows_of(
    items: Sequence[PriorItem],
    scores: Sequence[LengthScores],
    config: PriorConfig,
    *,
    decode: Callable[[Sequence[int]], str],
) -> list[dict[str, Any]]:
    """Rows in item order. The first of `scores` is the main prefix length; more of them make a sweep."""
    rows = []
    for place, item in enumerate(items):
        row = window_row(item.window) | {"kind": item.kind, "suffix_text": decode(item.window.suffix_ids)}
        judged = [_judged(item, place, each, config) for each in scores]
        row |= _prior_columns(judged[0])
        if len(scores) > 1:
            row |= _sweep_columns(judged, scores)
        if config.run is not None:
            row |= {"scan_verdict": item.scan_verdict, "scan_p_verbatim": item.scan_p_verbatim}
        inner = len(item.window.suffix_ids) - 1
        row["token_evals"] = sum(len(item.window.ids) + inner * each.distinct_prefixes for each in scores)
        rows.append(row)
    return rows


def _judged(item: PriorItem, place: int, scores: LengthScores, config: PriorConfig) -> _Judged:
    tokens = len(item.window.suffix_ids)
    own, estimate = scores.log_conditionals[place], scores.estimates[place]
    return _Judged(
        own,
        estimate,
        scores.thresholds[tokens],
        least_probability(config, tokens),
        ratio_interval(own, sound_log_interval(estimate)),
    )


def _prior_columns(judged: _Judged) -> dict[str, Any]:
    estimate, threshold = judged.estimate, judged.threshold
    sampled, sound = ratio_interval(judged.log_conditional, log_interval(estimate)), judged.sound_ratio
    return {
        "log_p_conditional": judged.log_conditional,
        "log_p_prior": estimate.log_mean,
        "prior_relative_error": _defined(estimate.relative_error),
        "prior_effective_prefixes": _defined(estimate.effective_prefixes),
        "prior_largest_share": _defined(estimate.largest_share),
        "trial_log_priors": list(estimate.trial_log_means),
        "log_ratio": judged.log_ratio,
        "log_ratio_low": _defined(sampled.low),
        "log_ratio_high": _defined(sampled.high),
        "interval_reason": sampled.reason,
        "log_ratio_sound_low": _defined(sound.low),
        "log_ratio_sound_high": _defined(sound.high),
        "least_probability": judged.least_conditional,
        "log_least_ratio": _defined(threshold.log_least_ratio),
        "log_least_ratio_low": _defined(threshold.interval.low),
        "log_least_ratio_high": _defined(threshold.interval.high),
        "prior_verdict": str(judged.verdict),
        "is_settled": judged.verdict is not PriorVerdict.UNSETTLED,
        "point_verdict": str(judged.point_verdict),
        "ratio_verdict": str(ratio_verdict(sound, threshold.interval)),
    }


def _sweep_columns(judged: Sequence[_Judged], scores: Sequence[LengthScores]) -> dict[str, Any]:
    return {
        "sweep_prefix_tokens": [each.prefix_tokens for each in scores],
        "sweep_log_p_conditional": [each.log_conditional for each in judged],
        "sweep_log_p_prior": [each.estimate.log_mean for each in judged],
        "sweep_prior_verdict": [str(each.verdict) for each in judged],
        "sweep_point_verdict": [str(each.point_verdict) for each in judged],
    }


def _defined(value: float) -> float | None:
    """Parquet's null for an undefined statistic."""
    return None if math.isnan(value) else value
