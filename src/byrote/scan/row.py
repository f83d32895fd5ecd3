"""The columns of a scan: every measure declares its own, and how a measured window fills them.

Verbatim, greedy and near are made by the stages of the pipeline; further measures are registered, one file each.
Nothing here imports torch or pyarrow.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from byrote.scan.measures.base import Decode, Measure, Measured
from byrote.scan.measures.membership import MEMBERSHIP
from byrote.scan.measures.unlearning import UNLEARNING
from byrote.store.columns import (
    COST_COLUMNS,
    PROMPT_COLUMNS,
    WINDOW_COLUMNS,
    Column,
    Kind,
    Schema,
    policy_columns,
    sweep_column,
    window_row,
)
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
register(UNLEARNING)


def measure_names() -> tuple[str, ...]:
    return ("greedy", "verbatim", "near", *FURTHER)


def every_measure(config: "RunConfig") -> tuple[Measure, ...]:
    """Every measure there is, in the order of their columns; the columns of some follow from the options."""
    scored = (VERBATIM, VERBATIM_UPPER, greedy_measure(config), GREEDY_ANSWER, sweep_measure(config), ANSWERS)
    searched = (NEAR, policies_measure(config), passage_measure(config), posthoc_measure(config), VERIFY, ESTIMATE)
    return (*scored, *searched, *FURTHER.values())


def measures_of(config: "RunConfig") -> tuple[Measure, ...]:
    """The measures that a scan with these options makes, in the order of their columns."""
    return tuple(measure for measure in every_measure(config) if measure.is_asked_for(config))


def _measure(
    name: str,
    is_asked_for: "Callable[[RunConfig], bool]",
    result: Callable[[Measured], Any],
    **columns: tuple[Kind, Callable[[Any], Any]],
) -> Measure:
    """A measure whose columns are computed of `result`; all of them are null where that is None."""

    def fill(item: Measured) -> dict[str, Any]:
        found = result(item)
        return {column: None if found is None else value(found) for column, (_, value) in columns.items()}

    return Measure(name, tuple(Column(column, kind) for column, (kind, _) in columns.items()), fill, is_asked_for)


VERBATIM = _measure(
    "verbatim",
    lambda config: "verbatim" in config.measures,
    lambda item: item.score,
    log_p_verbatim=("float64", lambda score: score.log_p[0]),
    p_verbatim=("float64", lambda score: score.p),
    # In a row the most likely token has rank 1; in `models` it has rank 0.
    suffix_ranks=("list[int32]", lambda score: [rank + 1 for rank in score.suffix_ranks]),
)
VERBATIM_UPPER = _measure(
    "verbatim_upper",
    lambda config: "verbatim" in config.measures and config.is_capped,
    lambda item: item.score,
    p_verbatim_upper=("float64", lambda score: score.p if score.p_upper is None else score.p_upper),
)
"""Where a server's cap leaves p_z open: then `p_verbatim` is its lower bound."""


def sweep_measure(config: "RunConfig") -> Measure:
    """One column a policy of the sweep, named as the policy was written: `log_p[t=0.7+k=40]`."""
    names = [sweep_column(text) for text in config.sweep]
    return Measure(
        "sweep",
        tuple(Column(name, "float64") for name in names),
        lambda item: dict(zip(names, item.score.log_p[1:], strict=False)),
        lambda config: bool(config.sweep) and "verbatim" in config.measures,
    )


def greedy_measure(config: "RunConfig") -> Measure:
    """The distances are null when the answer was seen to be beyond the budget before it was complete. Texts have no
    Hamming distance."""
    hamming: dict[str, tuple[Kind, Callable[[Any], Any]]] = {"greedy_hamming": ("int32", lambda answer: answer.hamming)}
    return _measure(
        "greedy",
        lambda config: "greedy" in config.measures,
        lambda item: item.greedy,
        **(hamming if config.unit == "tokens" else {}),
        greedy_levenshtein=("int32", lambda answer: answer.levenshtein),
        greedy_is_beyond_budget=("bool", lambda answer: answer.is_beyond_budget),
    )


GREEDY_ANSWER = _measure(
    "greedy_answer",
    lambda config: "greedy" in config.measures and config.greedy == "full",
    lambda item: item.greedy,
    greedy_ids=("list[int32]", lambda answer: list(answer.token_ids)),
    greedy_log_p=("float64", lambda answer: answer.log_p),
)


ANSWERS = _measure(
    "answers",
    lambda config: config.sampled_answers > 0,
    lambda item: item.answers,
    answers=("int32", lambda sampled: sampled.count),
    answer_hits=("list[int32]", lambda sampled: list(sampled.hits)),
)


def _of_search(value: "Callable[[SearchOutcome], Any]") -> Callable[[Measured], Any]:
    """The search's own account, before p_z is taken in and anything is closed or refined; null without a search. The
    last of `search_lower`, `open_mass`, `eos_mass` and `refuted_mass` add up to 1."""

    def of(item: Any) -> Any:
        return None if item.near.outcome is None else value(item.near.outcome)

    return of


NEAR = _measure(
    "near",
    lambda config: "near" in config.measures,
    lambda item: item,
    mass_lower=("list[float64]", lambda item: list(item.near.bounds.lower)),
    mass_upper=("list[float64]", lambda item: list(item.near.bounds.upper)),
    search_lower=("list[float64]", _of_search(lambda outcome: list(outcome.bounds.lower))),
    open_mass=("float64", _of_search(lambda outcome: outcome.open_mass)),
    eos_mass=("float64", _of_search(lambda outcome: outcome.eos)),
    # The baseline accepts continuations beyond the edit budget too; they count as refuted.
    refuted_mass=(
        "float64",
        _of_search(lambda outcome: outcome.refuted + max(0.0, outcome.covered - outcome.bounds.lower[-1])),
    ),
    verdict=("text", lambda item: str(item.near.verdict)),
    stop_reason=("text", lambda item: str(item.near.stop_reason)),
    stop_step=("int32", lambda item: item.near.stop_step),
    screen_score=("float64", lambda item: item.near.screen_score),
    was_screened=("bool", lambda item: item.near.is_below_floor),
    screen_density=("float64", lambda item: item.density),
)


def policies_measure(config: "RunConfig") -> Measure:
    """Two columns a policy of `policies`, named as it was written: `mass_lower[k=10]`, `mass_upper[k=10]`."""
    names = [name for text in config.policies for name in policy_columns(text)]

    def fill(item: Measured) -> dict[str, Any]:
        assert item.near is not None
        sides = (side for bounds in item.near.policy_bounds for side in (bounds.lower, bounds.upper))
        return {name: list(side) for name, side in zip(names, sides, strict=True)}

    columns = tuple(Column(name, "list[float64]") for name in names)
    return Measure("policies", columns, fill, lambda config: bool(config.policies) and "near" in config.measures)


def passage_measure(config: "RunConfig") -> Measure:
    """Bounds by length, of the expected length, and the longest answer that was found."""
    return _measure(
        "passage",
        lambda config: bool(config.passage) and "near" in config.measures,
        lambda item: item.passage,
        passage_lower=("list[float64]", lambda passage: [passage.lower[block - 1] for block in config.passage_blocks]),
        passage_upper=("list[float64]", lambda passage: [passage.upper[block - 1] for block in config.passage_blocks]),
        passage_expected_lower=("float64", lambda passage: passage.expected[0]),
        passage_expected_upper=("float64", lambda passage: passage.expected[1]),
        passage_ids=("list[int32]", lambda passage: None if passage.longest is None else list(passage.longest[0])),
        passage_log_p=("float64", lambda passage: None if passage.longest is None else passage.longest[1]),
        passage_text=("text", lambda passage: passage.text),
        passage_target=("text", lambda passage: passage.target),
    )


VERIFY = _measure(
    "verify",
    lambda config: config.verify and "near" in config.measures,
    lambda item: item.verified,
    verified_mass=("float64", lambda checked: checked.verified_mass),
    verified_share=("float64", lambda checked: checked.share_of_lower),
    verified_shift=("float64", lambda checked: checked.largest_shift),
)
ESTIMATE = _measure(
    "estimate",
    lambda config: config.estimate != "off" and "near" in config.measures,
    lambda item: None if item.estimate is None else item,
    mass_estimate=("float64", lambda item: item.estimate.value),
    mass_standard_error=("float64", lambda item: item.estimate.standard_error),
    mass_low=("float64", lambda item: item.estimate.interval.low),
    mass_high=("float64", lambda item: item.estimate.interval.high),
    mass_limit=("float64", lambda item: item.estimate.upper_limit),
    mass_samples=("int64", lambda item: item.estimate.samples),
    mass_hits=("int64", lambda item: item.estimate.hits),
    mass_sampled=("float64", lambda item: item.estimate.sampled_mass),
    mass_base=("float64", lambda item: item.estimate.base_mass),
    sampled_verdict=("text", lambda item: item.sampled_verdict and str(item.sampled_verdict)),
)


def posthoc_measure(config: "RunConfig") -> Measure:
    """Three columns a metric, equal text too (`posthoc_bleu_lower` and `…_upper`, certified bounds on the mass that is
    close; `…_found`, the mass of what was returned and is close, p_z only where the target is one of these); and of
    what was returned the number, the number of different texts, and the mass whose text a heavier one has too."""
    bounds = [f"posthoc_{name}_{side}" for name in ("text", *config.posthoc) for side in ("lower", "upper", "found")]
    columns = (
        *(Column(name, "float64") for name in bounds),
        Column("posthoc_continuations", "int32"),
        Column("posthoc_texts", "int32"),
        Column("posthoc_merged_mass", "float64"),
    )

    def fill(item: Measured) -> dict[str, Any]:
        assert item.posthoc is not None
        return {column.name: item.posthoc.get(column.name) for column in columns}

    return Measure("posthoc", columns, fill, lambda config: bool(config.posthoc) and "near" in config.measures)


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
    prompted = () if config.prompt == ("plain",) else PROMPT_COLUMNS
    return (*records, *prompted, *(SHARED_COLUMNS if config.control or config.pairs else ()))


def facts_carried(windows: Sequence[Window]) -> Schema:
    """The same of windows from any source: what some of them carry; the others have nulls there."""
    carried = {name for window in windows for name in window.further}
    carried |= {"given_ids" for window in windows if window.given_ids is not None}
    every = (*RECORD_COLUMNS, *PREFIX_COLUMNS, *PROMPT_COLUMNS, *SHARED_COLUMNS)
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
