"""Figures of rates by group: copies in training, kinds and tags of records."""

from collections.abc import Sequence

from rote.report.drawing import Drawing
from rote.report.figures.groups import rates_by_group
from rote.report.figures.rates import CopiesSeries, rate_by_copies
from rote.report.groups import GROUPINGS, group_rates
from rote.report.rates import Criterion
from rote.report.tables import CopiesRate, copies_rates
from rote.report.view import RunView


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
