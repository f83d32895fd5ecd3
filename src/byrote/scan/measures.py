"""The columns of a scan: every measure declares its own, and how a measured window fills them.

Verbatim, greedy and near are made by the stages of the pipeline; further measures are registered, one file each.
Nothing here imports torch or pyarrow.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from byrote.scan.base import Decode, Measure, Measured
from byrote.scan.membership import MEMBERSHIP
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS, Column, Schema, sweep_column, window_row
from byrote.types import Window

if TYPE_CHECKING:
    from byrote.scan.options import RunConfig
    from byrote.search.base import SearchOutcome

FURTHER: dict[str, Measure] = {}
"""Measures beside those of the pipeline's own stages, by name."""


def register(measure: Measure) -> None:
    """Make `measure` one that `--measures` can name."""
    FURTHER[measure.name] = measure


register(MEMBERSHIP)


def measure_names() -> tuple[str, ...]:
    return ("greedy", "verbatim", "near", *FURTHER)


def every_measure(config: "RunConfig") -> tuple[Measure, ...]:
    """Every measure there is, in the order of their columns; the columns of some follow from the options."""
    sweep, posthoc = sweep_measure(config), posthoc_measure(config)
    own = (VERBATIM, VERBATIM_UPPER, GREEDY, GREEDY_ANSWER, sweep, NEAR, posthoc, VERIFY, ESTIMATE)
    return (*own, *FURTHER.values())


def measures_of(config: "RunConfig") -> tuple[Measure, ...]:
    """The measures that a scan with these options makes, in the order of their columns."""
    return tuple(measure for measure in every_measure(config) if measure.is_asked_for(config))


def _verbatim(item: Measured) -> dict[str, Any]:
    """Ranks count from 1, the most likely token, as a reader does; those of the model room count from 0."""
    score = item.score
    ranks = [rank + 1 for rank in score.suffix_ranks]
    return {"log_p_verbatim": score.log_p[0], "p_verbatim": score.p, "suffix_ranks": ranks}


VERBATIM = Measure(
    "verbatim",
    (Column("log_p_verbatim", "float64"), Column("p_verbatim", "float64"), Column("suffix_ranks", "list[int32]")),
    _verbatim,
    lambda config: "verbatim" in config.measures,
)
VERBATIM_UPPER = Measure(
    "verbatim_upper",
    (Column("p_verbatim_upper", "float64"),),
    lambda item: {"p_verbatim_upper": item.score.p if item.score.p_upper is None else item.score.p_upper},
    lambda config: "verbatim" in config.measures and config.is_capped,
)
"""Where a server's cap leaves p_z open: then `p_verbatim` is its lower bound."""


def sweep_measure(config: "RunConfig") -> Measure:
    """One column a policy of the sweep, named as the policy was written: `log_p[t=0.7+k=40]`."""
    names = [sweep_column(text) for text in config.sweep]
    return Measure(
        "sweep",
        tuple(Column(name, "float64") for name in names),
        lambda item: dict(zip(names, item.score.log_p[1:], strict=True)),
        lambda config: bool(config.sweep) and "verbatim" in config.measures,
    )


def _greedy(item: Measured) -> dict[str, Any]:
    """Distances are null when the answer was seen to be beyond the budget before it was complete."""
    assert item.greedy is not None
    return {
        "greedy_hamming": item.greedy.hamming,
        "greedy_levenshtein": item.greedy.levenshtein,
        "greedy_is_beyond_budget": item.greedy.is_beyond_budget,
    }


GREEDY = Measure(
    "greedy",
    (
        Column("greedy_hamming", "int32"),
        Column("greedy_levenshtein", "int32"),
        Column("greedy_is_beyond_budget", "bool"),
    ),
    _greedy,
    lambda config: "greedy" in config.measures,
)


def _greedy_answer(item: Measured) -> dict[str, Any]:
    assert item.greedy is not None
    return {"greedy_ids": list(item.greedy.token_ids), "greedy_log_p": item.greedy.log_p}


GREEDY_ANSWER = Measure(
    "greedy_answer",
    (Column("greedy_ids", "list[int32]"), Column("greedy_log_p", "float64")),
    _greedy_answer,
    lambda config: "greedy" in config.measures and config.greedy == "full",
)


def _ledger(outcome: "SearchOutcome | None") -> dict[str, Any]:
    """The search's own account, before p_z is taken in and anything is closed or refined; nulls without a search.

    The last of `search_lower` and the other three add up to 1. The baseline accepts continuations beyond the edit
    budget too; they count as refuted.
    """
    if outcome is None:
        return dict.fromkeys(("search_lower", "open_mass", "eos_mass", "refuted_mass"))
    return {
        "search_lower": list(outcome.bounds.lower),
        "open_mass": outcome.open_mass,
        "eos_mass": outcome.eos,
        "refuted_mass": outcome.refuted + max(0.0, outcome.covered - outcome.bounds.lower[-1]),
    }


def _near(item: Measured) -> dict[str, Any]:
    assert item.near is not None
    result = item.near
    return {
        "mass_lower": list(result.bounds.lower),
        "mass_upper": list(result.bounds.upper),
        **_ledger(result.outcome),
        "verdict": str(result.verdict),
        "stop_reason": str(result.stop_reason),
        "stop_step": result.stop_step,
        "screen_score": result.screen_score,
        "was_screened": result.is_below_floor,
        "screen_density": item.density,
    }


NEAR = Measure(
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
        Column("screen_score", "float64"),
        Column("was_screened", "bool"),
        Column("screen_density", "float64"),
    ),
    _near,
    lambda config: "near" in config.measures,
)


def _verified(item: Measured) -> dict[str, Any]:
    """Nulls where there was nothing to re-score."""
    checked = item.verified
    if checked is None:
        return {column.name: None for column in VERIFY.columns}
    return {
        "verified_mass": checked.verified_mass,
        "verified_share": checked.share_of_lower,
        "verified_shift": checked.largest_shift,
    }


VERIFY = Measure(
    "verify",
    (Column("verified_mass", "float64"), Column("verified_share", "float64"), Column("verified_shift", "float64")),
    _verified,
    lambda config: config.verify and "near" in config.measures,
)


def _estimated(item: Measured) -> dict[str, Any]:
    """Nulls where nothing was sampled."""
    estimate = item.estimate
    if estimate is None:
        return {column.name: None for column in ESTIMATE.columns}
    return {
        "mass_estimate": estimate.value,
        "mass_standard_error": estimate.standard_error,
        "mass_low": estimate.interval.low,
        "mass_high": estimate.interval.high,
        "mass_limit": estimate.upper_limit,
        "mass_samples": estimate.samples,
        "mass_hits": estimate.hits,
        "mass_sampled": estimate.sampled_mass,
        "mass_base": estimate.base_mass,
        "sampled_verdict": None if item.sampled_verdict is None else str(item.sampled_verdict),
    }


ESTIMATE = Measure(
    "estimate",
    (
        Column("mass_estimate", "float64"),
        Column("mass_standard_error", "float64"),
        Column("mass_low", "float64"),
        Column("mass_high", "float64"),
        Column("mass_limit", "float64"),
        Column("mass_samples", "int64"),
        Column("mass_hits", "int64"),
        Column("mass_sampled", "float64"),
        Column("mass_base", "float64"),
        Column("sampled_verdict", "text"),
    ),
    _estimated,
    lambda config: config.estimate != "none" and "near" in config.measures,
)


def posthoc_measure(config: "RunConfig") -> Measure:
    """Two columns a metric (`posthoc_bleu_lower`, `posthoc_bleu_upper`), equal text among them, and counts of texts."""
    bounds = [f"posthoc_{name}_{side}" for name in ("text", *config.posthoc) for side in ("lower", "upper")]
    columns = (
        *(Column(name, "float64") for name in bounds),
        Column("posthoc_continuations", "int32"),
        Column("posthoc_texts", "int32"),
        Column("posthoc_merged_mass", "float64"),
    )
    return Measure("posthoc", columns, _judged, lambda config: bool(config.posthoc) and "near" in config.measures)


def _judged(item: Measured) -> dict[str, Any]:
    assert item.posthoc is not None
    found = item.posthoc
    lower = {f"posthoc_{name}_lower": bounds.lower for name, bounds in found.bounds.items()}
    upper = {f"posthoc_{name}_upper": bounds.upper for name, bounds in found.bounds.items()}
    counts = {
        "posthoc_continuations": found.continuations,
        "posthoc_texts": found.texts,
        "posthoc_merged_mass": found.merged_mass,
    }
    return lower | upper | counts


CONTINUATIONS_SCHEMA: Schema = (
    Column("window_id", "text", is_required=True),
    Column("rank", "int32", is_required=True),
    Column("token_ids", "list[int32]", is_required=True),
    Column("text", "text", is_required=True),
    Column("log_p", "float64", is_required=True),
    Column("distance", "int32"),
)


RECORD_COLUMNS: Schema = (Column("copies", "int64"), Column("kind", "text"), Column("tags", "list[text]"))
"""What a pair's file adds: how often it stood in the training data, and words to group it by."""
PREFIX_COLUMNS: Schema = (Column("prefix_char_start", "int64", is_required=True),)
"""Where the prefix begins that the model was given, of a window that was cut with a longer one."""
SHARED_COLUMNS: Schema = (Column("shared_share", "float64"), Column("shared_with", "text"))
"""How much of a control window's suffix stands in a target text, and in which if that is half of it or more."""


def facts_of(config: "RunConfig") -> Schema:
    """What the windows of a scan with these options carry beside their text (`Window.further`)."""
    records = RECORD_COLUMNS if config.pairs else PREFIX_COLUMNS if config.cut_prefix_tokens is not None else ()
    return (*records, *(SHARED_COLUMNS if config.control or config.pairs else ()))


def facts_carried(windows: Iterable[Window]) -> Schema:
    """The same of windows from any source: what some of them carry; the others have nulls there."""
    carried = {name for window in windows for name in window.further}
    every = (*RECORD_COLUMNS, *PREFIX_COLUMNS, *SHARED_COLUMNS)
    return tuple(column._replace(is_required=False) for column in every if column.name in carried)


def results_schema(measures: Sequence[Measure], facts: Schema = ()) -> Schema:
    """Columns of a run with these measures: the window, facts about it, what was measured, the cost.

    Columns of a measure that was not asked for are absent.
    """
    measured = (column for measure in measures for column in measure.columns)
    return (*WINDOW_COLUMNS, *facts, *measured, *COST_COLUMNS)


def continuations_schema(config: "RunConfig") -> Schema | None:
    """The second table of a scan; None when it keeps no continuations."""
    return CONTINUATIONS_SCHEMA if "near" in config.measures and config.keep > 0 else None


def row_of(item: Measured, measures: Sequence[Measure]) -> dict[str, Any]:
    """A window's row of results.parquet."""
    row = window_row(item.window)
    for measure in measures:
        row |= measure.fill(item)
    return row | {"token_evals": item.token_evals}


def continuation_rows(item: Measured, decode: Decode, most: int) -> list[dict[str, Any]]:
    """A window's rows of continuations.parquet: what was found, heaviest first."""
    if item.near is None or item.near.outcome is None:
        return []
    return [
        {
            "window_id": item.window.window_id,
            "rank": rank,
            "token_ids": list(continuation.token_ids),
            "text": decode(continuation.token_ids),
            "log_p": continuation.log_p,
            "distance": continuation.distance,
        }
        for rank, continuation in enumerate(item.near.outcome.continuations[:most], start=1)
    ]
