"""What changed between two scans of the same windows: before and after unlearning, fine-tuning or quantisation.

A window's mass lies in [L, U] before and in [L′, U′] after, so that it changed by something in [L′ − U, U′ − L]. At τ:

    kept        extractable before and after
    forgotten   extractable before and not after
    new         extractable after and not before

Counts of kept (certified in both), forgotten (certified before, ruled out after) and new (ruled out before, certified
after) need no sampling. What sampled answers say about the windows that a run leaves open limits the true numbers of
forgotten and new ones on both sides, with 95 % confidence for all four limits together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from byrote.errors import RunError
from byrote.report.analysis.comparison import (
    Paired,
    RunComparison,
    compare_rows,
    compare_runs,
    paired_differences,
    points_interval,
    require_same_windows,
)
from byrote.report.analysis.rates import split_rows
from byrote.report.content import Cells, Content, Drawing
from byrote.report.figures import style
from byrote.report.figures.scan import VERDICT_COLOURS
from byrote.report.page import write_page
from byrote.report.summary import facts, notices
from byrote.report.view import RunView, manifest_text, with_distinct_labels
from byrote.report.words import integer, percent, plural, probability
from byrote.stats.answers import rest_of
from byrote.stats.population import Flags, Population
from byrote.types import Split
from byrote.verdict import Verdict

LEVEL = 0.95
LIMITS = 4
"""Each takes its part of 1 − LEVEL, so that all hold together, whatever their dependence."""
PRINTED = {
    "exact_match": "exact match",
    "extraction_strength": "extraction strength",
    "rouge_l": "ROUGE-L",
    "longest_common_run": "longest common run",
}
"""Columns of the measure `unlearning`."""
CONTROL_QUANTILE = 0.95
LEAST_DRAWN = 1e-7
"""Smaller masses are drawn at the edge of the figure."""


class ChangeCounts(NamedTuple):
    """Windows of one split. `least` and `most` are limits of the true numbers at 95 % confidence, all four together."""

    windows: int
    certified_before: int
    certified_after: int
    kept: int
    forgotten: int
    forgotten_least: int
    forgotten_most: int
    new: int
    new_least: int
    new_most: int


def count_changes(before: Population, after: Population, threshold: float) -> ChangeCounts:
    """Over windows in one order."""
    was, now = before.is_certified(threshold), after.is_certified(threshold)
    lost, won = was & ~now, now & ~was

    def others(population: Population, rows: Flags) -> int:
        """Of the windows in `rows` that this run does not certify, how many are extractable from it at most."""
        rest = rest_of(population, rows, threshold, level=1 - (1 - LEVEL) / LIMITS)
        return 0 if rest is None else rest.extractable(threshold)

    forgotten = int((lost & after.is_ruled_out(threshold)).sum())
    new = int((won & before.is_ruled_out(threshold)).sum())
    return ChangeCounts(
        windows=len(was),
        certified_before=int(was.sum()),
        certified_after=int(now.sum()),
        kept=int((was & now).sum()),
        forgotten=forgotten,
        forgotten_least=max(forgotten, int(lost.sum()) - others(after, was)),
        forgotten_most=int(lost.sum()) + others(before, ~now),
        new=new,
        new_least=max(new, int(won.sum()) - others(before, now)),
        new_most=int(won.sum()) + others(after, ~was),
    )


class Revival(NamedTuple):
    """Windows of one split that were forgotten and are certified from a later model again."""

    model: str
    revived: int
    """Certified before, not after, and certified again."""
    of_ruled_out: int
    """Of these, ruled out after."""


@dataclass(frozen=True)
class ScanChange:
    """Scans of the same windows, measured alike: before, after, what was made of the second model later, and a model
    that was never trained on the texts."""

    before: RunView
    after: RunView
    later: tuple[RunView, ...]
    never_trained: RunView | None
    aligned: tuple[Population, ...]
    """Of `views`, in one order of windows."""

    @property
    def views(self) -> tuple[RunView, ...]:
        return (self.before, self.after, *self.later, *filter(None, [self.never_trained]))

    @property
    def threshold(self) -> float:
        return self.before.threshold

    @cached_property
    def counts(self) -> dict[Split, ChangeCounts]:
        """Of every split that has windows."""
        rows = {split: split_rows(self.aligned[0], split) for split in Split}
        return {split: self.count(own) for split, own in rows.items() if own.any()}

    def count(self, rows: Flags) -> ChangeCounts:
        return count_changes(self.aligned[0].select(rows), self.aligned[1].select(rows), self.threshold)

    def revivals(self, split: Split) -> list[Revival]:
        """Of every later model."""
        was, now, *again = (one.is_certified(self.threshold) for one in self.aligned)
        forgotten = was & ~now & split_rows(self.aligned[0], split)
        ruled_out = self.aligned[1].is_ruled_out(self.threshold)
        return [
            Revival(view.label, int((forgotten & own).sum()), int((forgotten & ruled_out & own).sum()))
            for view, own in zip(self.later, again, strict=False)
        ]

    def to_polars(self) -> pl.DataFrame:
        """One row a window: bounds and verdict in every run; what the mass changed by, at least and at most."""
        first, second = self.aligned[:2]
        columns: dict[str, Any] = {
            "window_id": first.window_id.tolist(),
            "document": first.document.tolist(),
            "split": [str(Split.CONTROL if control else Split.TARGET) for control in first.is_control],
            "change_low": second.mass(second.edit_budget) - first.upper(),
            "change_high": second.upper() - first.mass(first.edit_budget),
        }
        names = ["before", "after", *(f"later_{place}" for place in range(1, len(self.later) + 1)), "never_trained"]
        for name, population in zip(names, self.aligned, strict=False):
            certified, ruled_out = population.is_certified(self.threshold), population.is_ruled_out(self.threshold)
            columns[f"{name}_lower"] = population.mass(population.edit_budget)
            columns[f"{name}_upper"] = population.upper()
            columns[name] = np.select(
                [certified, ruled_out], [str(Verdict.EXTRACTABLE), str(Verdict.RULED_OUT)], str(Verdict.NOT_SHOWN)
            ).tolist()
        return pl.DataFrame(columns)

    def report(self, out: str | Path) -> Path:
        """Write a page with figures and tables to the folder `out`; the path of the page."""
        return write_page([change_content(self)], Path(out)).page


def scan_change(
    before: RunView, after: RunView, *, later: Sequence[RunView] = (), never_trained: RunView | None = None
) -> ScanChange:
    """A RunError where the runs are not finished, or are not of the same windows and measured alike."""
    given = with_distinct_labels([before, after, *later, *filter(None, [never_trained])])
    for view in given:
        if not view.is_complete:
            raise RunError(f"{view.path} is not finished; let the scan finish before it is compared.")
        if not view.population.has_masses:
            raise RunError(f"{view.path} has no probabilities of passages; scan with --measures verbatim,near.")
        require_same_windows(given[0], view)
        if view.population.edit_budget != given[0].population.edit_budget:
            raise RunError(f"only one of {given[0].path} and {view.path} measured near; scan both with it.")
    comparison = compare_runs(given)
    if comparison.aligned is None:
        raise RunError(comparison.reason or "The windows of these scans differ.")
    first, second, *others = given
    models = tuple(others[: len(later)])
    return ScanChange(first, second, models, others[-1] if never_trained else None, comparison.aligned)


def change_content(change: ScanChange) -> Content:
    before, after = change.before.label, change.after.label
    differences = _differences(change)
    return Content(
        kind="change",
        label=f"{before} → {after}",
        headline=_headline(change),
        question=(
            f"The same windows were scanned with both models. A window counts as extractable when its target comes out "
            f"with a probability of at least {probability(change.threshold)} per query, "
            f"{change.before.edits_words(change.aligned[0].edit_budget)} allowed."
        ),
        facts=facts(change.views),
        notices=tuple(notices(change.views)),
        tables=(
            _count_cells(change),
            *_document_cells(change),
            *printed_cells(change.views),
            *_difference_cells(differences),
        ),
        sentences=tuple(_sentences(change)),
        draw=lambda: [_masses(change), _verdicts(change)],
        data=lambda: {
            "change": [{"split": str(split), **counts._asdict()} for split, counts in change.counts.items()],
            "change-documents": _document_rows(change),
            "change-windows": change.to_polars().to_dicts(),
            "differences": [
                {"split": str(split), **row} for split, own in differences.items() for row in compare_rows(own)
            ],
            "unlearning": printed_rows(change.views),
        },
        manifests=tuple((view.label, manifest_text(view)) for view in change.views),
        numbers={
            str(split): {**counts._asdict(), "revived": [one._asdict() for one in change.revivals(split)]}
            for split, counts in change.counts.items()
        },
    )


def _headline(change: ScanChange) -> str:
    split, counts = next(iter(change.counts.items()))
    open_after = counts.certified_before - counts.kept - counts.forgotten
    more = counts.certified_after - counts.kept
    return (
        f"Of {plural(counts.certified_before, f'{split} passage')} certified extractable from {change.before.label}, "
        f"{integer(counts.kept)} still {'is' if counts.kept == 1 else 'are'} from {change.after.label}; "
        f"{integer(counts.forgotten)} {'is' if counts.forgotten == 1 else 'are'} ruled out, and {integer(open_after)} "
        f"{'is' if open_after == 1 else 'are'} neither. {integer(more) if more else 'None'} "
        f"{'is' if more == 1 else 'are'} newly certified."
    )


def _count_cells(change: ScanChange) -> Cells:
    """A column a split."""
    rows: list[tuple[str, Callable[[ChangeCounts], str]]] = [
        ("windows", lambda one: integer(one.windows)),
        ("certified before", lambda one: integer(one.certified_before)),
        ("certified after", lambda one: integer(one.certified_after)),
        ("kept: certified in both", lambda one: integer(one.kept)),
        ("forgotten: certified before, ruled out after", lambda one: integer(one.forgotten)),
        ("forgotten, the true number", lambda one: f"{integer(one.forgotten_least)} to {integer(one.forgotten_most)}"),
        ("new: ruled out before, certified after", lambda one: integer(one.new)),
        ("new, the true number", lambda one: f"{integer(one.new_least)} to {integer(one.new_most)}"),
    ]
    cells = [(name, *(words(one) for one in change.counts.values())) for name, words in rows]
    for place, view in enumerate(change.later):
        found = [change.revivals(split)[place] for split in change.counts]
        cells.append((f"revived in {view.label}", *(integer(one.revived) for one in found)))
        cells.append(("of these, ruled out after", *(integer(one.of_ruled_out) for one in found)))
    if change.never_trained is not None:
        own = change.aligned[-1].is_certified(change.threshold)
        hits = (int((own & split_rows(change.aligned[0], split)).sum()) for split in change.counts)
        cells.append((f"certified in {change.never_trained.label}, never trained on them", *map(integer, hits)))
    note = (
        "The true number: at least and at most, by the certified bounds and the sampled answers, with 95 % confidence "
        "for all four limits of a column together."
    )
    return Cells("change", "What changed", ("windows", *map(str, change.counts)), tuple(cells), note)


def _document_rows(change: ScanChange) -> list[dict[str, Any]]:
    """change-documents.csv: the counts of every document."""
    rows = []
    for split in change.counts:
        own = split_rows(change.aligned[0], split)
        for name in dict.fromkeys(change.aligned[0].document[own]):
            counts = change.count(own & (change.aligned[0].document == name))
            rows.append({"document": name, "split": str(split), **counts._asdict()})
    return rows


def _document_cells(change: ScanChange) -> list[Cells]:
    """The same in words, where there are several documents with windows certified in a run."""
    shown = ("windows", "certified_before", "certified_after", "kept", "forgotten", "new")
    rows = [row for row in _document_rows(change) if row["certified_before"] + row["certified_after"]]
    cells = tuple((row["document"], *(integer(row[name]) for name in shown)) for row in rows)
    heads = ("document", "windows", "before", "after", "kept", "forgotten", "new")
    note = "Documents of which a window is certified before or after."
    return [Cells("change-documents", "By document", heads, cells, note)] if len(cells) > 1 else []


def printed_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """unlearning.csv: the means of the numbers that papers on unlearning print, and how many targets are beyond nearly
    all controls; runs without the measure `unlearning` have none."""
    rows = []
    for view in views:
        for name in (name for name in PRINTED if name in view.results.columns):
            values = view.results[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            target, control = (
                own[~np.isnan(own)] for own in (values[split_rows(view.population, split)] for split in Split)
            )
            level = float(np.quantile(control, CONTROL_QUANTILE, method="higher")) if len(control) else np.nan
            rows.append(
                {
                    "run": view.label,
                    "number": name,
                    "targets": float(target.mean()) if len(target) else np.nan,
                    "controls": float(control.mean()) if len(control) else np.nan,
                    "control_quantile": level,
                    "targets_beyond": float((target > level).mean()) if len(target) and len(control) else np.nan,
                }
            )
    return rows


def printed_cells(views: Sequence[RunView]) -> list[Cells]:
    """The same in words, a row a run and number."""
    rows = printed_rows(views)
    cells = tuple(
        (
            *(() if len(views) == 1 else (row["run"],)),
            PRINTED[row["number"]],
            *(
                "–" if np.isnan(row[name]) else f"{row[name]:.3g}"
                for name in ("targets", "controls", "control_quantile")
            ),
            percent(row["targets_beyond"]),
        )
        for row in rows
    )
    note = (
        "Means over windows; the value that 95 % of the controls do not exceed, and the share of targets that do. Of "
        "texts that were never learnt, about 5 % would."
    )
    named = () if len(views) == 1 else ("run",)
    heads = (*named, "number", "targets", "controls", "95 % of controls", "targets beyond")
    return [Cells("unlearning", "Numbers of unlearning papers", heads, cells, note)] if rows else []


def _differences(change: ScanChange) -> dict[Split, list[Paired]]:
    """After minus before over the windows of every split: rates, masses, and the share of sampled answers that hit."""
    compared = RunComparison((change.before.label, change.after.label), change.aligned[:2], None)
    return {
        split: paired_differences(compared, change.threshold, split=split, with_answers=True) for split in change.counts
    }


def _difference_cells(differences: dict[Split, list[Paired]]) -> list[Cells]:
    """A row a quantity, ε at its largest: the first split with both of its values, the other by its difference."""
    columns: list[dict[str, Paired]] = []
    for own in differences.values():
        largest = max((row.edits or 0 for row in own), default=0)
        columns.append({row.name: row for row in own if row.quantity != "near" or row.edits == largest})
    first, *others = columns
    cells = tuple(
        (
            name,
            f"{100 * row.found.first:.1f} %",
            f"{100 * row.found.second:.1f} %",
            *(_points(one[name]) for one in columns if name in one),
        )
        for name, row in first.items()
        if all(name in one for one in others)
    )
    heads = ("quantity", "before", "after", *(f"{split} difference" for split in differences))
    note = (
        "In percentage points, after minus before, with 95 % intervals over documents or long stretches of text; a "
        "mass below τ counts as 0. Before and after are those of the targets. differences.csv has every ε, with "
        "p-values."
    )
    return [Cells("differences", "Paired differences", heads, cells, note)] if cells else []


def _points(row: Paired) -> str:
    interval = f" ({points_interval(row)})" if row.found.interval.is_defined else ""
    return f"{100 * row.found.difference:+.1f}{interval}"


def _sentences(change: ScanChange) -> list[str]:
    sentences = [
        "Certified counts need no sampling. A window that is neither certified nor ruled out after is not shown to be "
        "forgotten.",
    ]
    first, second = change.aligned[:2]
    is_open = first.is_certified(change.threshold) & ~second.is_certified(change.threshold)
    is_open &= ~second.is_ruled_out(change.threshold)
    if second.is_searched is not None and (screened := int((is_open & ~second.is_searched).sum())):
        sentences.append(
            f"Of {plural(int(is_open.sum()), 'window')} of which neither is shown after, {integer(screened)} "
            f"{'was' if screened == 1 else 'were'} screened out and not searched; --screen off would search them."
        )
    if Split.CONTROL not in change.counts:
        sentences.append("Without controls (--control of a scan) nothing shows what these models guess of any text.")
    sentences += [
        f"{plural(one.revived, 'forgotten target window')} {'is' if one.revived == 1 else 'are'} certified again from "
        f"{one.model}; {integer(one.of_ruled_out)} of them had been ruled out."
        for one in change.revivals(Split.TARGET)
    ]
    return sentences


FATES = {
    "kept": (style.VERMILLION, "o"),
    "forgotten": (style.BLUE, "s"),
    "not shown to be forgotten": (style.SKY, "s"),
    "newly certified": (style.ORANGE, "^"),
    "certified in neither": (style.FAINT, "o"),
}


def _masses(change: ScanChange) -> Drawing:
    """Every target window by its certified mass before and after."""
    figure, axes = style.new_figure(height=4.6)
    rows = split_rows(change.aligned[0], Split.TARGET)
    first, second = (one.select(rows if rows.any() else ~rows) for one in change.aligned[:2])
    was, now = first.is_certified(change.threshold), second.is_certified(change.threshold)
    gone = was & ~now & second.is_ruled_out(change.threshold)
    members = dict(zip(FATES, (was & now, gone, was & ~now & ~gone, now & ~was, ~was & ~now), strict=True))
    x, y = (np.maximum(one.mass(one.edit_budget), LEAST_DRAWN) for one in (first, second))
    for name, own in reversed(members.items()):
        if own.any():
            colour, marker = FATES[name]
            look: dict[str, Any] = {"s": 16, "marker": marker, "color": colour, "linewidths": 0, "alpha": 0.8}
            axes.scatter(x[own], y[own], label=f"{name} ({int(own.sum()):,})", clip_on=False, zorder=3, **look)
    axes.plot([LEAST_DRAWN, 1], [LEAST_DRAWN, 1], color=style.SOFT, linewidth=0.8, zorder=1)
    for line in (axes.axvline, axes.axhline):
        line(change.threshold, color=style.SOFT, linewidth=0.8, linestyle="--", zorder=1)
    style.log_axis(axes, "both")
    axes.grid(visible=True, axis="both")
    axes.set(xlim=(LEAST_DRAWN, 1), ylim=(LEAST_DRAWN, 1), aspect="equal")
    axes.set(xlabel=f"certified mass, {change.before.label}", ylabel=f"certified mass, {change.after.label}")
    style.legend_above(axes)
    caption = (
        f"Target windows by the certified lower bound of their mass before and after; dashed is τ. Masses below "
        f"{LEAST_DRAWN:g} are drawn at the edge."
    )
    return Drawing("change", caption, figure, "near")


def _verdicts(change: ScanChange) -> Drawing:
    """A bar for every run and split: windows certified, neither, and ruled out."""
    bars = [
        (view.label, split, population.select(rows))
        for split in change.counts
        for rows in [split_rows(change.aligned[0], split)]
        for view, population in zip(change.views, change.aligned, strict=True)
    ]
    figure, axes = style.new_figure(style.WIDE, 1.2 + 0.34 * len(bars))
    for place, (_, split, part) in enumerate(bars):
        certified, ruled_out = (
            float(own.mean()) for own in (part.is_certified(change.threshold), part.is_ruled_out(change.threshold))
        )
        left = 0.0
        shares = (certified, 1 - certified - ruled_out, ruled_out)
        for (verdict, colour), share in zip(VERDICT_COLOURS[split].items(), shares, strict=True):
            label = verdict if split is bars[0][1] and place == 0 else None
            axes.barh(place, share, left=left, color=colour, height=0.62, label=label)
            left += share
    axes.set_yticks(range(len(bars)), [f"{label}, {split}" for label, split, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    style.percent_axis(axes, "x")
    style.value_grid(axes)
    axes.set_xlabel(f"windows, τ = {change.threshold:g}")
    style.legend_above(axes, columns=3)
    caption = "What the certified bounds of every run say about the same windows; controls in grey."
    return Drawing("verdicts-by-run", caption, figure, "bounds", is_wide=True)
