"""The columns of a scan: every measure says its own, and how a result of it fills them.

A measure is declared beside what it computes or here, and listed in `measures_of`; the run's tables, the Python
interface and the pipeline take it from there. Nothing here needs pyarrow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Column, Schema

if TYPE_CHECKING:
    from rote.models.teacher_forcing import VerbatimScore
    from rote.scan.greedy import GreedyResult
    from rote.scan.near import NearResult
    from rote.scan.options import RunConfig
    from rote.scan.verify import Verified
    from rote.search.base import SearchOutcome
    from rote.types import Estimate

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Measure(Generic[Result]):
    """What is measured of a window: its columns, and `fill`, which gives each of them a value."""

    name: str
    columns: Schema
    fill: Callable[[Result], dict[str, Any]]


def _verbatim(score: "VerbatimScore") -> dict[str, Any]:
    return {"log_p_verbatim": score.log_p[0], "p_verbatim": score.p, "suffix_ranks": list(score.suffix_ranks)}


VERBATIM: "Measure[VerbatimScore]" = Measure(
    "verbatim",
    (Column("log_p_verbatim", "float64"), Column("p_verbatim", "float64"), Column("suffix_ranks", "list[int32]")),
    _verbatim,
)
SWEEP: "Measure[VerbatimScore]" = Measure(
    "sweep", (Column("sweep_log_p", "list[float64]"),), lambda score: {"sweep_log_p": list(score.log_p[1:])}
)


def _greedy(result: "GreedyResult") -> dict[str, Any]:
    return {"greedy_hamming": result.hamming, "greedy_levenshtein": result.levenshtein}


GREEDY: "Measure[GreedyResult]" = Measure(
    "greedy", (Column("greedy_hamming", "int32"), Column("greedy_levenshtein", "int32")), _greedy
)


def _near(result: "NearResult") -> dict[str, Any]:
    return {
        "mass_lower": list(result.bounds.lower),
        "mass_upper": list(result.bounds.upper),
        **_ledger(result.outcome),
        "verdict": str(result.verdict),
        "stop_reason": str(result.stop_reason),
        "stop_step": result.stop_step,
        "screen_rating": result.rating,
        "was_screened": result.was_rated_below_floor,
    }


def _ledger(outcome: "SearchOutcome | None") -> dict[str, Any]:
    """The search's own account, before p_z is taken in and anything is closed or refined; nulls without a search.

    What it covered and the three masses add up to 1; `search_lower` ends with what it covered (not in the baseline).
    """
    if outcome is None:
        return dict.fromkeys(("search_lower", "open_mass", "eos_mass", "refuted_mass"))
    return {
        "search_lower": list(outcome.bounds.lower),
        "open_mass": outcome.open_mass,
        "eos_mass": outcome.eos,
        "refuted_mass": outcome.refuted,
    }


NEAR: "Measure[NearResult]" = Measure(
    "near",
    (
        Column("mass_lower", "list[float64]"),
        Column("mass_upper", "list[float64]"),
        Column("search_lower", "list[float64]"),
        Column("open_mass", "float64"),
        Column("eos_mass", "float64"),
        Column("refuted_mass", "float64"),
        Column("verdict", "text"),
        Column("stop_reason", "text"),
        Column("stop_step", "int32"),
        Column("screen_rating", "float64"),
        Column("was_screened", "bool"),
    ),
    _near,
)


def _verified(checked: "Verified | None") -> dict[str, Any]:
    """Nulls where there was nothing to re-score."""
    if checked is None:
        return {column.name: None for column in VERIFY.columns}
    return {
        "verified_mass": checked.verified_mass,
        "verified_share": checked.share_of_lower,
        "verified_shift": checked.largest_shift,
    }


VERIFY: "Measure[Verified | None]" = Measure(
    "verify",
    (Column("verified_mass", "float64"), Column("verified_share", "float64"), Column("verified_shift", "float64")),
    _verified,
)


def _estimated(estimate: "Estimate | None") -> dict[str, Any]:
    """Nulls where nothing was sampled."""
    if estimate is None:
        return {column.name: None for column in ESTIMATE.columns}
    return {
        "mass_estimate": estimate.value,
        "mass_standard_error": estimate.standard_error,
        "mass_low": estimate.interval.low,
        "mass_high": estimate.interval.high,
        "mass_limit": estimate.upper_limit,
        "mass_samples": estimate.samples,
    }


ESTIMATE: "Measure[Estimate | None]" = Measure(
    "estimate",
    (
        Column("mass_estimate", "float64"),
        Column("mass_standard_error", "float64"),
        Column("mass_low", "float64"),
        Column("mass_high", "float64"),
        Column("mass_limit", "float64"),
        Column("mass_samples", "int64"),
    ),
    _estimated,
)

CONTINUATIONS_SCHEMA: Schema = (
    Column("window_id", "text", is_required=True),
    Column("rank", "int32", is_required=True),
    Column("token_ids", "list[int32]", is_required=True),
    Column("text", "text", is_required=True),
    Column("log_p", "float64", is_required=True),
    Column("distance", "int32"),
)


def measures_of(config: "RunConfig") -> tuple[Measure[Any], ...]:
    """The measures that a scan with these options makes, in the order of their columns."""
    is_wanted: dict[Measure[Any], bool] = {
        VERBATIM: "verbatim" in config.measures,
        GREEDY: "greedy" in config.measures,
        SWEEP: bool(config.sweep) and "verbatim" in config.measures,
        NEAR: "near" in config.measures,
        VERIFY: config.verify and "near" in config.measures,
        ESTIMATE: bool(config.residual) and "near" in config.measures,
    }
    return tuple(measure for measure, is_asked_for in is_wanted.items() if is_asked_for)


def results_schema(measures: Sequence[Measure[Any]]) -> Schema:
    """Columns of a run with these measures: the window, what was measured, the cost.

    Columns of a measure that was not asked for are absent.
    """
    return (*WINDOW_COLUMNS, *(column for measure in measures for column in measure.columns), *COST_COLUMNS)


def continuations_schema(config: "RunConfig") -> Schema | None:
    """The second table of a scan; None when it keeps no continuations."""
    return CONTINUATIONS_SCHEMA if "near" in config.measures and config.keep > 0 else None
