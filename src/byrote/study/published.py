"""Published numbers, and for each the measure of a run that is the same quantity.

Two kinds of measures read alike and differ. The near-verbatim paper prints what its search alone found, and so do
`search_near`, `unlocked`, `gain_at`, `posthoc` and others here: they are taken from `search_lower`, which p_z never
enters. byrote's own bound (`near`) holds p_z and is at least as large.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from byrote.errors import ConfigError
from byrote.options import Settled, option
from byrote.report.analysis.rates import Criterion, hits_of, units_of
from byrote.report.words import integer
from byrote.stats.clusters import rate_over_units
from byrote.stats.curves import queries_needed_from_log
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags, Floats, Population, recovery
from byrote.store.columns import sweep_column


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(Settled):
    """A published number, and which cell of the grid measures it again."""

    quantity: str = option("", "What the paper calls it.", group="text")
    measure: str = option("near", "The same quantity of a cell.", group="text", choices=lambda: MEASURES)
    where: str = option("", "The cell it is about: axis=value, several joined by commas.", group="text")
    about: str = option("", "The published cell, where `where` names another model or text.", group="text")
    value: float = option(0.0, "The published number; rates as shares.", group="text", at_least=0)
    unit: Literal["count", "share", "number"] = option("share", "Windows, a share of them, or neither.", group="text")
    source: str = option("", "Paper, and table, figure or section.", group="text")
    split: Literal["target", "control"] = option("target", "Which side it is about.", group="text")
    among: Literal["all", "extractable", "unlocked", "fixed", "new"] = option(
        "all", "Of which windows: all; extractable by the search alone within the edit budget; unlocked; extractable "
        "from every model of the study (fixed); or from no earlier one (new).", group="text",
    )  # fmt: skip
    edits: int | None = option(None, "ε.", group="text", at_least=0, default_words="the run's edit budget")
    at: float = option(0.0, "The mass gain in question.", group="text", at_least=0)
    probability: float = option(0.5, "p of (n, p).", group="text", above=0, at_most=1)
    queries: float = option(1.0, "n of (n, p).", group="text", at_least=1)
    policy: str = option("", "A policy of the sweep.", group="text", default_words="the run's own")
    metrics: str = option("", "A metric of posthoc; a&b for both, a-b for the first alone.", group="text")

    @property
    def settings(self) -> dict[str, str]:
        """axis → value."""
        pairs = [part.partition("=") for part in self.where.split(",") if part.strip()]
        return {name.strip().replace("-", "_"): value.strip() for name, _, value in pairs}

    @property
    def measure_words(self) -> str:
        """The measure with its parameters."""
        whole = MEASURES[self.measure].whole or self.among
        return MEASURES[self.measure].words.format(
            edits="the edit budget" if self.edits is None else self.edits, at=f"{self.at:g}", metrics=self.metrics,
            p=f"{self.probability:g}", n=f"{self.queries:,.0f}", policy=f" under {self.policy}" if self.policy else "",
        ) + (f" (of those {whole})" if whole != "all" and self.unit != "count" else "")  # fmt: skip

    def words(self, value: float) -> str:
        """A number of this kind as a paper prints it."""
        if np.isnan(value):
            return "–"
        if self.unit == "count":
            return integer(round(value))
        if self.unit == "share":
            return f"{100 * value:.2f} %"
        return f"{value:.6g}" if value >= 100 else f"{value:.4g}"


def expanded(blocks: Any, axes: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Entries of a study's file, one for every number.

    `over` names axes, and `values` has a number for each of their values in order (nested for several axes; null where
    nothing was published; one `value` stands for all). Of measures that count windows, a number written with % or as a
    fraction is a share, and another one a count.
    """
    rows = []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ConfigError("published must be a list of tables, each of which says source, measure and value.")
    for block in blocks:
        entry = {name: value for name, value in block.items() if name not in ("over", "value", "values")}
        numbers: list[tuple[tuple[str, ...], Any]] = [((), block.get("value", block.get("values")))]
        for axis in [name.strip() for name in str(block.get("over", "")).split(",") if name.strip()]:
            if axis not in axes:
                raise ConfigError(f"a published {block.get('measure')} is over {axis}, which is no axis of the study.")
            numbers = [
                ((*settings, f"{axis}={value}"), inner)
                for settings, outer in numbers
                for value, inner in zip(axes[axis], outer if isinstance(outer, list) else [outer] * len(axes[axis]),
                                        strict=False)
            ]  # fmt: skip
        for settings, number in numbers:
            if number is not None:
                where = ", ".join([*settings, *filter(None, [block.get("where")])])
                rows.append(_as_number(number, str(block.get("measure"))) | entry | {"where": where})
    return rows


def _as_number(written: Any, measure: str) -> dict[str, Any]:
    share = re.fullmatch(r"\s*([0-9.]+)\s*%", str(written))
    if share:
        return {"value": str(float(share[1]) / 100), "unit": "share"}
    unit = MEASURES[measure].unit if measure in MEASURES else "number"
    is_fraction = re.fullmatch(r"0?\.[0-9]+", str(written).strip()) is not None
    return {"value": written, "unit": "share" if unit == "count" and is_fraction else unit}


@dataclass(frozen=True)
class CellSide:
    """The windows of one side of a cell, those that enter rates."""

    population: Population
    results: pl.DataFrame
    threshold: float
    samples: Sequence[Mapping[str, Any]] = ()
    """Windows sampled by plain Monte Carlo."""
    family: "Sequence[CellSide]" = ()
    """The cells that differ in the model alone, in the order of the study, this one among them."""
    place: int = 0
    """Which of the family it is."""

    def found(self, edits: int | None) -> Floats:
        """What the search by itself found within `edits` edits; measured if every window was searched."""
        lower = self.population.search_lower
        if lower is None or np.isnan(lower).any() or (edits or 0) >= lower.shape[1]:
            raise _NotMeasured
        return lower[:, -1 if edits is None else edits]

    @property
    def p_verbatim(self) -> Floats:
        return _measured(self.population.p_verbatim)

    def keys(self) -> list[tuple[Any, ...]]:
        """What names a window across models with one tokenizer."""
        return list(zip(self.population.window_id, self.population.char_end.tolist(), strict=True))

    def reached(self, other: "CellSide", flags: Flags) -> Flags:
        """Which windows are among those that `flags` marks in another cell."""
        marked = {key for key, flag in zip(other.keys(), flags, strict=True) if flag}
        return np.array([key in marked for key in self.keys()], dtype=np.bool_)


class _NotMeasured(Exception):
    """The cell lacks what a quantity needs; the published number then stands alone."""


def _measured(values: NDArray[Any] | None) -> NDArray[Any]:
    if values is None:
        raise _NotMeasured
    return values


Answer = Flags | float
"""Windows that count, or a number of them together."""


class Quantity(NamedTuple):
    words: str
    unit: Literal["count", "number"]
    """What a number without % is."""
    find: Callable[[CellSide, Published], Answer] | None = None
    """None for what prior runs and audits record by the measure's name."""
    of: Literal["scan", "prior", "audit"] = "scan"
    whole: str = ""
    """What a recorded count is a share of."""


class Reading(NamedTuple):
    value: float
    """NaN where the measure is undefined, as a share of no windows."""
    rate: Rate | None
    """With its interval, where the value is a count or share of windows."""


def read_recorded(numbers: Mapping[str, float | None], row: Published) -> Reading | None:
    """The number of a prior run or an audit, from those it recorded; None where it recorded none."""
    value, whole = numbers.get(row.measure), numbers.get(MEASURES[row.measure].whole)
    if value is None or row.unit != "share":
        return None if value is None else Reading(float(value), None)
    return Reading(value / whole if whole else np.nan, None)


def read_measure(side: CellSide, row: Published) -> Reading | None:
    """The cell's own number; None where it was not measured, and where the side has no windows."""
    find = MEASURES[row.measure].find
    if find is None or not len(side.population):
        return None
    try:
        found, rows = find(side, row), among(side, row)
    except _NotMeasured:
        return None
    if not isinstance(found, np.ndarray):
        return Reading(found, None)
    hits, part = int((found & rows).sum()), side.population.select(rows)
    rate = rate_over_units(found[rows], units_of(part)) if len(part) else None
    return Reading(float(hits) if row.unit == "count" else float(hits / rows.sum()) if rows.any() else np.nan, rate)


def among(side: CellSide, row: Published) -> Flags:
    """The windows that a share, median or mean is taken of; what is extractable is judged at the whole edit budget."""
    if row.among == "all":
        return np.ones(len(side.population), dtype=np.bool_)
    whole = replace(row, edits=None)
    if row.among == "unlocked":
        return _unlocked(side, whole)
    own = _extractable(side, whole)
    for other in {"fixed": side.family, "new": side.family[: side.place]}.get(row.among, ()):
        there = side.reached(other, _extractable(other, whole))
        own = own & (there if row.among == "fixed" else ~there)
    return own


def _extractable(side: CellSide, row: Published) -> Flags:
    return side.found(row.edits) >= side.threshold


def _unlocked(side: CellSide, row: Published) -> Flags:
    return _extractable(side, row) & (side.found(0) < side.threshold)


def _by_criterion(criterion: Criterion) -> Callable[[CellSide, Published], Answer]:
    def find(side: CellSide, row: Published) -> Answer:
        budget, is_greedy = side.population.edit_budget, criterion is Criterion.GREEDY
        edits = (0 if is_greedy else budget) if row.edits is None else row.edits
        if edits > budget and not is_greedy:
            raise _NotMeasured
        return _measured(hits_of(side.population, criterion, edits=edits, threshold=side.threshold))

    return find


def _of_search(statistic: Callable[[Floats], Any]) -> Callable[[CellSide, Published], Answer]:
    """A statistic of the masses that the search found."""

    def find(side: CellSide, row: Published) -> Answer:
        near = side.found(row.edits)[among(side, row)]
        return float(statistic(near)) if len(near) else np.nan

    return find


def _verbatim_share_median(side: CellSide, row: Published) -> Answer:
    """Of extractable windows, whatever the row says: others may have no mass to share."""
    rows = among(side, row if row.among != "all" else replace(row, among="extractable"))
    return float(np.median(side.found(0)[rows] / side.found(row.edits)[rows])) if rows.any() else np.nan


def _promoted(side: CellSide, row: Published) -> Answer:
    if side.place + 1 >= len(side.family):
        raise _NotMeasured
    larger = side.family[side.place + 1]
    return _unlocked(side, row) & side.reached(larger, larger.found(0) >= larger.threshold)


def _recovery(side: CellSide, row: Published) -> Answer:
    """The papers' ratio: windows at τ by the search alone over windows at τ by teacher forcing. It may exceed 1."""
    known = int((side.p_verbatim >= side.threshold).sum())
    return float((side.found(0) >= side.threshold).sum() / known) if known else np.nan


def _log_p(side: CellSide, row: Published) -> Floats:
    if row.policy:
        column = sweep_column(row.policy)
        return _measured(side.results[column].to_numpy() if column in side.results.columns else None)
    _measured(side.population.log_p_verbatim)
    return side.population.log_verbatim()


def _queries_to_greedy(side: CellSide, row: Published) -> Answer:
    """The least n at which more windows come out within n queries than greedily; inf where there is none."""
    needed = np.sort(queries_needed_from_log(_log_p(side, row), row.probability))
    count = int((_measured(side.population.greedy_distance) == 0).sum())
    return float(needed[count]) if count < len(needed) else np.inf


def _mc_ratio(side: CellSide, row: Published) -> Answer:
    """What the search found over the mean of plain sampling: the median of the windows that were sampled and hit."""
    own = dict(zip(side.population.window_id, side.found(row.edits), strict=True))
    ratios = [
        own[one["window_id"]] / one["mass"] for one in side.samples if one["window_id"] in own and one["mass"] > 0
    ]
    return float(np.median(_measured(np.array(ratios) if ratios else None)))


def _posthoc(side: CellSide, row: Published) -> Answer:
    """By what was returned alone; `a&b` counts windows that both metrics find, `a-b` those of the first alone."""
    columns = [f"posthoc_{name}_found" for name in re.split("[&-]", row.metrics)]
    if any(column not in side.results.columns or side.results[column].null_count() for column in columns):
        raise _NotMeasured
    first, *second = (side.results[column].to_numpy() >= side.threshold for column in columns)
    return first if not second else first & (second[0] if "&" in row.metrics else ~second[0])


MEASURES: dict[str, Quantity] = {
    "windows": Quantity("windows measured", "count", lambda side, row: np.ones(len(side.population), dtype=np.bool_)),
    "greedy": Quantity("greedy answer within ε ≤ {edits}", "count", _by_criterion(Criterion.GREEDY)),
    "verbatim": Quantity("p_z ≥ τ, teacher forcing", "count", _by_criterion(Criterion.VERBATIM)),
    "possible": Quantity("p_z > 0", "count", lambda side, row: ~side.population.is_impossible()),
    "near": Quantity("mass within ε ≤ {edits}, p_z included, ≥ τ", "count", _by_criterion(Criterion.NEAR)),
    "search_near": Quantity("mass within ε ≤ {edits} by the search alone ≥ τ", "count", _extractable),
    "unlocked": Quantity("by the search alone: ≥ τ within ε ≤ {edits} and not exactly", "count", _unlocked),
    "unlocked_from_zero": Quantity(
        "the same, nothing of the exact text found",
        "count",
        lambda side, row: _unlocked(side, row) & (side.found(0) == 0),
    ),
    "promoted": Quantity("unlocked here and exact at the next model", "count", _promoted),
    "gain_at": Quantity(
        "mass gained within ε ≤ {edits} by the search alone ≥ {at}",
        "count",
        lambda side, row: side.found(row.edits) - side.found(0) >= row.at,
    ),
    "missed": Quantity(
        "p_z ≥ τ and the search alone < τ",
        "count",
        lambda side, row: (side.p_verbatim >= side.threshold) & (side.found(0) < side.threshold),
    ),
    "recovery": Quantity("exact rate by the search over that by teacher forcing", "number", _recovery),
    "found_share": Quantity(
        "share of windows with p_z ≥ τ whose target the search found",
        "number",
        lambda side, row: recovery(side.found(0), side.p_verbatim, side.threshold).share,
    ),
    "verbatim_mass": Quantity("mean p_z", "number", lambda side, row: float(side.p_verbatim.mean())),
    "mass_mean": Quantity("mean mass within ε ≤ {edits} by the search alone", "number", _of_search(np.mean)),
    "mass_median": Quantity("median mass within ε ≤ {edits} by the search alone", "number", _of_search(np.median)),
    "mass_max": Quantity("largest mass within ε ≤ {edits} by the search alone", "number", _of_search(np.max)),
    "verbatim_share_median": Quantity(
        "median share of the exact text in the mass found", "number", _verbatim_share_median
    ),
    "within_queries": Quantity(
        "word for word within n = {n} with p = {p}{policy}",
        "count",
        lambda side, row: queries_needed_from_log(_log_p(side, row), row.probability) <= row.queries,
    ),
    "queries_to_greedy": Quantity("least n whose rate at p = {p} is above greedy", "number", _queries_to_greedy),
    "mc_ratio": Quantity("search alone over plain sampling, median of windows", "number", _mc_ratio),
    "posthoc": Quantity("{metrics} of what the search returned, ≥ τ", "count", _posthoc),
    "suffixes": Quantity("suffixes scored", "count", of="prior"),
    "extractable": Quantity("P(s|p) > m", "count", of="prior", whole="suffixes"),
    "prior_aware": Quantity("P(s|p)/P(s) > n, estimates taken as exact", "count", of="prior", whole="extractable"),
    "common": Quantity("P(s|p)/P(s) ≤ n, estimates taken as exact", "count", of="prior", whole="extractable"),
    "similarity": Quantity("largest share of the target in one run of words, phase 1", "number", of="audit"),
    "instruction": Quantity("number of the instruction that gave it", "count", of="audit"),
    "book_words": Quantity("words of the book", "count", of="audit"),
    "generated_words": Quantity("words of the generation", "count", of="audit"),
    "matched_words": Quantity("words in near-verbatim blocks", "count", of="audit"),
    "nv_recall": Quantity("matched words over words of the book", "number", of="audit"),
    "longest_block": Quantity("matched words of the longest block", "count", of="audit"),
    "requests": Quantity("requests of phase 2 that brought text", "count", of="audit"),
    "cost": Quantity("cost of all requests", "number", of="audit"),
    "cost_with_assumed_cache": Quantity("the same with an assumed cache", "number", of="audit"),
}
"""Every quantity that a published number can be."""
