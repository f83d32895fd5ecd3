"""Rates by group of windows: the kind and the tags of records, and the number of copies in training."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from byrote.report.analysis.queries import lines_drawing, query_lines
from byrote.report.analysis.rates import HEADLINE_CRITERIA, Criterion, rate_fields, rates_at_budget, split_rows
from byrote.report.content import Cells, Drawing
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.figures.style import BLUE, INK, VERMILLION, WIDE, legend_above, new_figure, percent_axis, value_grid
from byrote.report.view import RunView
from byrote.report.words import integer, plural, share_words
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags
from byrote.types import Split

GROUPINGS = {"kind": "kind", "tag": "tags"}
"""By its name, the column that has a window's group or the list of its groups."""


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
    for grouping, column in GROUPINGS.items():
        for group, rows in _rows_by(view.results[column].to_list() if column in view.results.columns else []).items():
            for split in Split:
                part = view.population.select(rows & split_rows(view.population, split))
                found = rates_at_budget(part, view.threshold, HEADLINE_CRITERIA)
                rates += [GroupRate(grouping, str(group), split, *one) for one in found]
    return rates


def _rows_by(values: Sequence[Any]) -> dict[Any, Flags]:
    """Which windows have each value that occurs, ascending; a window may have none, or a list of several."""
    every = [value if isinstance(value, list) else [value] for value in values]
    known = sorted({value for own in every for value in own if value is not None})
    return {value: np.array([value in own for own in every], dtype=np.bool_) for value in known}


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
            *(share_words(rates[one]) if one in rates else "–" for one in HEADLINE_CRITERIA),
        )
        for (grouping, group, side), rates in rows.items()
    )
    heads = ("group", "side", "windows", *(criterion.value for criterion in HEADLINE_CRITERIA))
    return [Cells("groups", "Records by kind and tag", heads, lines)] if lines else []


class CopiesRate(NamedTuple):
    """The rate of a criterion over the documents with the same number of copies in training."""

    copies: int
    is_other_edition: bool
    criterion: Criterion
    hits: int
    rate: Rate


def copies_of_windows(view: RunView, *, is_other_edition: bool = False) -> list[int | None]:
    """Of each window: its record's where records have them, which may differ within a document (0 for a control without
    a number); otherwise its document's. None where unknown, or where the document is of the other kind."""
    if "copies" in view.results.columns and not is_other_edition:
        own = zip(view.results["copies"].to_list(), view.population.is_control, strict=True)
        return [0 if copies is None and is_control else copies for copies, is_control in own]
    return [
        document.copies if document.is_other_edition == is_other_edition else None
        for document in view.documents
        for _ in range(document.windows)
    ]


def by_copies(copies: NDArray[np.object_]) -> dict[str, Flags]:
    """The windows with each number of copies, most first; no more numbers than a figure has colours for, and nothing
    where fewer than two are known."""
    levels = sorted({count for count in copies if count is not None}, reverse=True)
    if len(levels) < 2:
        return {}
    chosen = sorted(set(np.linspace(0, len(levels) - 1, min(len(levels), MOST_LINES)).round().astype(int).tolist()))
    return {f"copies: {levels[place]}": np.asarray(copies == levels[place], dtype=np.bool_) for place in chosen}


def copies_rates(view: RunView) -> list[CopiesRate]:
    """Every measured criterion (greedy answers exact, near-verbatim at the whole budget) by copies and wording."""
    rates: list[CopiesRate] = []
    for is_other_edition in (False, True):
        for count, rows in _rows_by(copies_of_windows(view, is_other_edition=is_other_edition)).items():
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


def copies_cells(view: RunView) -> list[Cells]:
    """Of records with copies, a row a number of copies: the exact rate, and the near one beside it."""
    if not view.is_records or not copies_rows([view]):
        return []
    rates: dict[int, dict[Criterion, Rate]] = {}
    for entry in copies_rates(view):
        rates.setdefault(entry.copies, {})[entry.criterion] = entry.rate
    shown = [one for one in (Criterion.VERBATIM, Criterion.NEAR) if all(one in found for found in rates.values())]
    lines = tuple(
        (integer(copies), integer(next(iter(found.values())).n), *(share_words(found[one]) for one in shown))
        for copies, found in sorted(rates.items())
    )
    near = f"or within {plural(view.population.edit_budget, 'edit')}"
    heads = ("copies", "records", NAMES[Criterion.VERBATIM], near)[: 2 + len(shown)]
    return [Cells("copies", "Records by copies in training (0: control)", heads, lines)]


COLOURS = {Criterion.GREEDY: INK, Criterion.VERBATIM: BLUE, Criterion.NEAR: VERMILLION}
NAMES = {Criterion.GREEDY: "greedy, exact", Criterion.VERBATIM: "word for word", Criterion.NEAR: "nearly"}
MOST_GROUPS = 24
LINE_INCHES = 0.42
MOST_LINES = 7
"""Numbers of copies that are drawn; more would share colours."""


def rates_by_group(entries: Sequence[GroupRate]) -> Figure:
    """Groups with the most records first; what does not fit is in the table."""
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.group] = max(sizes.get(entry.group, 0), entry.rate.n)
    groups = sorted(sizes, key=lambda group: (-sizes[group], group))[:MOST_GROUPS]
    figure, axes = new_figure(WIDE, 1.4 + LINE_INCHES * len(groups))
    marks = list(dict.fromkeys((entry.criterion, entry.split) for entry in entries))
    for number, (criterion, split) in enumerate(marks):
        own = {entry.group: entry.rate for entry in entries if (entry.criterion, entry.split) == (criterion, split)}
        shift = (number - (len(marks) - 1) / 2) * 0.7 / len(marks)
        places = [place + shift for place, group in enumerate(groups) if group in own]
        rates = [own[group] for group in groups if group in own]
        colour, label = COLOURS[criterion], f"{NAMES[criterion]}, {split.value}"
        face = colour if split is Split.TARGET else "white"
        values = [rate.value for rate in rates]
        axes.plot(values, places, "o", color=colour, markerfacecolor=face, label=label, clip_on=False)
        lows, highs = [rate.interval.low for rate in rates], [rate.interval.high for rate in rates]
        axes.hlines(places, lows, highs, color=colour, alpha=0.45, linewidth=1.6)
    axes.set_yticks(range(len(groups)), [f"{group} ({sizes[group]})" for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    value_grid(axes)
    axes.set_xlabel("records extractable")
    percent_axis(axes, "x")
    legend_above(axes)
    return figure


def rate_by_copies(series: Mapping[str, Sequence[tuple[int, Rate]]]) -> Figure:
    """Rates against the number of copies in training, on a scale that holds 0 and doubles with every step; `series`
    holds (copies, rate) by ascending copies, for each label."""
    every = sorted({copies for points in series.values() for copies, _ in points})
    place = {copies: float(np.log2(copies) + 1) if copies else 0.0 for copies in every}
    lines = [
        Line(label, tuple(Point.of(place[copies], rate) for copies, rate in points)) for label, points in series.items()
    ]
    setting = Setting("copies in training (log scale)", tuple((place[copies], str(copies)) for copies in every))
    return overlay([Panel("", "windows extractable", tuple(lines))], setting)


def copies_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """Rates against copies in training, when at least two numbers of copies can be compared."""
    series: dict[str, list[tuple[int, Rate]]] = {}
    for view in views:
        prefix = f"{view.label}: " if len(views) > 1 else ""
        for entry in copies_rates(view):
            if entry.criterion in (Criterion.VERBATIM, Criterion.NEAR):
                edition = ", another edition in training" if entry.is_other_edition else ""
                series.setdefault(prefix + NAMES[entry.criterion] + edition, []).append((entry.copies, entry.rate))
    if not any(len(points) > 1 for points in series.values()):
        return []
    caption = "Share of windows extractable by how often their document stood in the training data (controls: 0)."
    drawings = [Drawing("copies", caption, rate_by_copies(series), "copies")]
    for number, view in enumerate(views, start=1):
        rows = split_rows(view.population, Split.TARGET)
        copies = np.array(copies_of_windows(view), dtype=object)
        lines = [
            query_lines(label, view.population.select(rows & members), view.threshold)
            for label, members in by_copies(copies).items()
        ]
        if any(lines):
            caption = (
                f"Share of target windows within n queries by copies in training, {view.label}, with 95 % intervals."
            )
            name = f"copies-queries-{number}" if len(views) > 1 else "copies-queries"
            drawings.append(lines_drawing(name, caption, lines))
    return drawings


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
