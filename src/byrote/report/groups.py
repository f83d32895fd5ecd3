"""Rates by group of windows: the kind and the tags of records, and the number of copies in training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from byrote.report.content import Cells, Drawing
from byrote.report.figures.rates import CopiesSeries, rate_by_copies
from byrote.report.figures.style import (
    BLUE,
    INK,
    VERMILLION,
    WIDE,
    house_style,
    legend_above,
    new_figure,
    percent_axis,
    say_empty,
)
from byrote.report.rates import Criterion, rate_fields, rates_at_budget, split_rows
from byrote.report.view import RunView
from byrote.report.words import integer, share_words
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags, rows_by_copies
from byrote.types import Split

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


def groups_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, group, side and criterion."""
    return [
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


def groups_cells(view: RunView) -> list[Cells]:
    """A row per group and side; nothing where records have neither kinds nor tags."""
    rows: dict[tuple[str, str, str], dict[Criterion, Rate]] = {}
    for entry in group_rates(view):
        rows.setdefault((entry.grouping, entry.group, entry.split.value), {})[entry.criterion] = entry.rate
    lines = tuple(
        (
            f"{grouping} {group}",
            side,
            integer(next(iter(rates.values())).n),
            *(share_words(rates[one]) if one in rates else "–" for one in GROUP_CRITERIA),
        )
        for (grouping, group, side), rates in rows.items()
    )
    heads = ("group", "side", "windows", *(criterion.value for criterion in GROUP_CRITERIA))
    return [Cells("groups", "Records by kind and tag", heads, lines)] if lines else []


class CopiesRate(NamedTuple):
    """The rate of a criterion over the documents with the same number of copies in training."""

    copies: int
    is_other_edition: bool
    criterion: Criterion
    hits: int
    rate: Rate


def _rows_by_copies(view: RunView, *, is_other_edition: bool) -> dict[int, Flags]:
    """By the copies of records where they have them, which may differ within a document (0 for a control without a
    number); otherwise by those of their documents."""
    if "copies" in view.results.columns and not is_other_edition:
        own = view.results["copies"].cast(pl.Int64).to_list()
        sides = zip(own, view.population.is_control.tolist(), strict=True)
        numbers = [0 if copies is None and is_control else copies for copies, is_control in sides]
        known = sorted({copies for copies in numbers if copies is not None})
        return {copies: np.array([each == copies for each in numbers], dtype=np.bool_) for copies in known}
    copies = view.other_edition_copies if is_other_edition else view.copies
    return rows_by_copies(view.population.document, copies)


def copies_rates(view: RunView) -> list[CopiesRate]:
    """Every measured criterion (greedy answers exact, near-verbatim at the whole budget) by copies and wording."""
    rates: list[CopiesRate] = []
    for is_other_edition in (False, True):
        for count, rows in _rows_by_copies(view, is_other_edition=is_other_edition).items():
            part = view.population.select(rows & view.population.is_rated)
            found = rates_at_budget(part, view.threshold, Criterion)
            rates += [CopiesRate(count, is_other_edition, *one) for one in found]
    return rates


def copies_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, number of copies, wording and criterion; none unless some target's copies are known."""
    rows = [
        {
            "run": view.label,
            "copies": entry.copies,
            "wording": "other edition" if entry.is_other_edition else "same",
            "criterion": entry.criterion.value,
            **rate_fields(entry.rate, entry.hits),
        }
        for view in views
        for entry in copies_rates(view)
    ]
    return rows if any(row["copies"] for row in rows) else []


COLOURS = {Criterion.GREEDY: INK, Criterion.VERBATIM: BLUE, Criterion.NEAR: VERMILLION}
NAMES = {Criterion.GREEDY: "greedy, exact", Criterion.VERBATIM: "word for word", Criterion.NEAR: "nearly"}
MOST_GROUPS = 24
LINE_INCHES = 0.42


def rates_by_group(entries: Sequence[GroupRate]) -> Figure:
    """Groups with the most records first; what does not fit is in the table."""
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.group] = max(sizes.get(entry.group, 0), entry.rate.n)
    groups = sorted(sizes, key=lambda group: (-sizes[group], group))[:MOST_GROUPS]
    figure, axes = new_figure(WIDE, 1.4 + LINE_INCHES * max(1, len(groups)))
    with house_style():
        if not groups:
            say_empty(axes, "No record of this run has a group.")
            return figure
        marks = list(dict.fromkeys((entry.criterion, entry.split) for entry in entries))
        for number, (criterion, split) in enumerate(marks):
            own = {entry.group: entry.rate for entry in entries if (entry.criterion, entry.split) == (criterion, split)}
            shift = (number - (len(marks) - 1) / 2) * 0.7 / max(1, len(marks))
            places = [place + shift for place, group in enumerate(groups) if group in own]
            rates = [own[group] for group in groups if group in own]
            colour = COLOURS[criterion]
            face = colour if split is Split.TARGET else "white"
            label = f"{NAMES[criterion]}, {split.value}"
            values = [rate.value for rate in rates]
            axes.plot(values, places, "o", color=colour, markerfacecolor=face, label=label, clip_on=False)
            for place, rate in zip(places, rates, strict=True):
                if rate.interval.is_defined:
                    axes.hlines(place, rate.interval.low, rate.interval.high, color=colour, alpha=0.45, linewidth=1.6)
        axes.set_yticks(range(len(groups)), [f"{group} ({sizes[group]})" for group in groups])
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("records extractable")
        percent_axis(axes, "x")
        legend_above(axes)
    return figure


def copies_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """Rates against copies in training, when at least two numbers of copies can be compared."""
    series = [one for view in views for one in copies_series(view, with_label=len(views) > 1)]
    if not any(len(one.copies) > 1 for one in series):
        return []
    caption = "Share of windows extractable by how often their document stood in the training data (controls: 0)."
    return [Drawing("copies", caption, rate_by_copies(series), "copies")]


def group_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """Rates by kind and by tag of the first run whose records have any."""
    for view in views:
        entries = group_rates(view)
        drawings = [
            Drawing(
                f"{grouping}s",
                f"Share of records extractable by {grouping}, with 95 % intervals; filled: target, hollow: control.",
                rates_by_group([entry for entry in entries if entry.grouping == grouping]),
                "kind",
                is_wide=True,
            )
            for grouping in GROUPINGS
            if any(entry.grouping == grouping for entry in entries)
        ]
        if drawings:
            return drawings
    return []


def copies_series(view: RunView, *, with_label: bool) -> list[CopiesSeries]:
    """A line per criterion for documents in the wording trained on, and one for other editions."""
    names = {Criterion.VERBATIM: "word for word", Criterion.NEAR: "nearly"}
    groups: dict[str, list[CopiesRate]] = {}
    for entry in copies_rates(view):
        if entry.criterion in names:
            prefix = f"{view.label}: " if with_label else ""
            edition = ", another edition in training" if entry.is_other_edition else ""
            groups.setdefault(prefix + names[entry.criterion] + edition, []).append(entry)
    return [
        CopiesSeries(name, tuple(entry.copies for entry in entries), tuple(entry.rate for entry in entries))
        for name, entries in groups.items()
    ]
