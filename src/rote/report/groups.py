"""Rates of records by what they say about themselves: their kind, and every tag they carry."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from rote.report.rates import Criterion, rate_fields, rates_at_budget, split_rows
from rote.report.view import RunView
from rote.stats.intervals import Rate
from rote.stats.population import Flags
from rote.types import Split

GROUPINGS = ("kind", "tag")
GROUP_CRITERIA = (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR)


class GroupRate(NamedTuple):
    """The rate of a criterion (greedy answers exact, near-verbatim at the whole budget) over a group's side."""

    grouping: str
    group: str
    split: Split
    criterion: Criterion
    hits: int
    rate: Rate


def group_rates(view: RunView) -> list[GroupRate]:
    """Every group of every grouping that the run's records have, in the order of the alphabet."""
    rates: list[GroupRate] = []
    for grouping in GROUPINGS:
        for group, rows in sorted(_rows_by_group(view, grouping).items()):
            for split in Split:
                part = view.population.select(rows & split_rows(view.population, split))
                found = rates_at_budget(part, view.threshold, GROUP_CRITERIA)
                rates += [GroupRate(grouping, group, split, *one) for one in found]
    return rates


def _rows_by_group(view: RunView, grouping: str) -> dict[str, Flags]:
    """Which windows belong to each group; a window may carry several tags."""
    column = "kind" if grouping == "kind" else "tags"
    if column not in view.results.columns:
        return {}
    rows = view.results.select(pl.col(column)).with_row_index("row")
    if grouping == "tag":
        rows = rows.explode(column)
    groups = {}
    for (group,), part in rows.drop_nulls(column).group_by(column):
        groups[str(group)] = np.isin(np.arange(len(view.results)), part["row"].to_numpy())
    return groups


def groups_table(views: Sequence[RunView]) -> pl.DataFrame | None:
    """One row per run, group, side and criterion; None when no record says anything about itself."""
    rows = [
        {
            "run": view.label,
            "grouping": entry.grouping,
            "group": entry.group,
            "split": entry.split.value,
            "criterion": entry.criterion.value,
            **rate_fields(entry.rate, entry.hits),
        }
        for view in views
        for entry in group_rates(view)
    ]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else None
