"""Scans of one training, step by step: when windows become extractable, what is forgotten, and rates by copies.

The step of a run is in its manifest (`training.step`), or at the end of its model's revision or name, as in `step1000`
and `checkpoint-500`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.errors import RunError
from byrote.report.analysis.comparison import RunComparison, compare_runs, counted_mass, rated_rows
from byrote.report.analysis.groups import by_copies, copies_of_windows
from byrote.report.analysis.rates import HEADLINE_CRITERIA, Criterion, split_rows
from byrote.report.content import Cells, Drawing
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.view import RunView
from byrote.report.words import integer, plural
from byrote.stats.population import Flags, Population
from byrote.types import Split


def by_steps(views: Sequence[RunView]) -> list[RunView]:
    """Runs of different steps in their order and labelled by them; any others as they are."""
    of_step = {step: view for view in views if (step := view.training_step) is not None}
    if len(views) < 2 or len(of_step) < len(views):
        return list(views)
    return [replace(of_step[step], label=f"step {step}") for step in sorted(of_step)]


class Change(NamedTuple):
    """From one step to the next, over the target windows."""

    newly: int
    """Certified extractable now, and not before."""
    forgotten: int
    """Certified before, and not now."""
    ruled_out: int
    """Of those forgotten: shown not to be extractable any more."""


def change_between(before: RunView, after: RunView) -> Change:
    """A RunError where the windows are not the same."""
    comparison = compare_runs([before, after])
    if comparison.aligned is None:
        raise RunError(comparison.reason or "The windows of these scans differ.")
    rows = rated_rows(comparison.aligned)
    first, second = (part.select(rows) for part in comparison.aligned)
    return _change(first, second, threshold=max(before.threshold, after.threshold))


def _change(before: Population, after: Population, *, threshold: float) -> Change:
    was, now = before.is_certified(threshold), after.is_certified(threshold)
    ruled_out = after.is_ruled_out(threshold)
    return Change(int((now & ~was).sum()), int((was & ~now).sum()), int((was & ruled_out).sum()))


def mean_counted_mass(view: RunView) -> float:
    """Of the target windows; a mass below τ counts as 0."""
    part = view.population.select(split_rows(view.population, Split.TARGET))
    return float(counted_mass(part, part.edit_budget, view.threshold).mean()) if len(part) else float("nan")


@dataclass(frozen=True)
class Series:
    """The same target windows at several steps of a training."""

    views: Sequence[RunView]
    steps: tuple[int, ...]
    parts: tuple[Population, ...]
    """The target windows of every step, in one order."""
    threshold: float

    @cached_property
    def certified(self) -> NDArray[np.bool_]:
        """[steps, windows]"""
        return np.stack([part.is_certified(self.threshold) for part in self.parts])

    @cached_property
    def so_far(self) -> NDArray[np.bool_]:
        """[steps, windows]: certified at this step or an earlier one."""
        return np.logical_or.accumulate(self.certified)

    @cached_property
    def changes(self) -> list[Change]:
        """From every step to the next."""
        return [_change(before, after, threshold=self.threshold) for before, after in pairwise(self.parts)]


def series_of(views: Sequence[RunView], comparison: RunComparison) -> Series | None:
    """Runs in the order of `by_steps`, where their steps and the windows they share are known."""
    steps = [step for view in views if (step := view.training_step) is not None]
    if comparison.aligned is None or len(set(steps)) < len(views):
        return None
    rows = rated_rows(comparison.aligned)
    if not rows.any():
        return None
    parts = tuple(part.select(rows) for part in comparison.aligned)
    return Series(views, tuple(steps), parts, views[0].threshold)


def series_cells(series: Series) -> Cells:
    rows = [
        (integer(row["step"]), *("–" if value is None else integer(value) for value in list(row.values())[1:]))
        for row in series_rows(series)
    ]
    heads = ("step", "extractable", "so far", "newly", "forgotten", "of these ruled out")
    note = (
        "Target windows certified extractable at a step, and at it or an earlier one. Newly: certified and not at the "
        "step before. Forgotten: certified at the step before and no longer; ruled out: shown not to be extractable."
    )
    return Cells("series", "Over the steps of training", heads, tuple(rows), note)


def series_rows(series: Series) -> list[dict[str, Any]]:
    """series.csv: a row a step."""
    counts = zip(series.steps, series.certified.sum(1).tolist(), series.so_far.sum(1).tolist(), strict=True)
    unknown = dict.fromkeys(Change._fields)
    changes: list[dict[str, Any]] = [unknown, *(change._asdict() for change in series.changes)]
    return [
        {"step": step, "extractable": extractable, "so_far": so_far, **change}
        for (step, extractable, so_far), change in zip(counts, changes, strict=True)
    ]


def window_rows(series: Series) -> list[dict[str, Any]]:
    """steps-by-window.csv: when a target window was first extractable, how often it was forgotten, and how it ended."""
    forgotten = (series.certified[:-1] & ~series.certified[1:]).sum(0)
    return [
        {
            "window_id": window_id,
            "first_extractable_step": series.steps[int(own.argmax())] if own.any() else None,
            "steps_extractable": int(own.sum()),
            "times_forgotten": int(forgotten[place]),
            "is_extractable_at_last": bool(own[-1]),
        }
        for place, (window_id, own) in enumerate(zip(series.parts[0].window_id, series.certified.T, strict=True))
    ]


def series_sentence(series: Series) -> str:
    ever, at_last = int(series.so_far[-1].sum()), int(series.certified[-1].sum())
    return (
        f"Of {plural(len(series.parts[0]), 'target window')}, {integer(ever)} were certified extractable at a step "
        f"from {integer(series.steps[0])} to {integer(series.steps[-1])}, and {integer(at_last)} still at the last."
    )


def series_drawings(series: Series) -> list[Drawing]:
    """Rates over the steps; and by copies, where they are known: when windows become extractable, how many are, and
    what share of those that were is not any more."""
    now, so_far, groups = series.certified, series.so_far, _groups(series)

    def panel(title: str, value_name: str, marked: NDArray[np.bool_], among: NDArray[np.bool_]) -> Panel:
        lines = []
        for label, members in groups.items():
            counts = zip(series.steps, (marked & members).sum(1), (among & members).sum(1), strict=True)
            points = tuple(Point(step, hits / windows) for step, hits, windows in counts if windows)
            lines.append(Line(label, points))
        return Panel(title, value_name, tuple(line for line in lines if line.points))

    panels = [
        panel("extractable by then", "target windows", so_far, np.ones_like(now)),
        panel("extractable at the step", "target windows", now, np.ones_like(now)),
        panel("forgotten", "of those extractable before", so_far & ~now, so_far),
    ]
    rates = "Share of windows over the steps of training, with 95 % intervals; controls in grey."
    fates = (
        "Share of target windows certified extractable at a step or an earlier one; at the step; and, of those that "
        f"were, no longer at the step{'; by copies in training' if len(groups) > 1 else ''}."
    )
    setting = Setting("step of training")
    return [
        Drawing("rates-by-step", rates, overlay([_rates(series)], setting), "near"),
        Drawing("extractable-by-step", fates, overlay(panels, setting), "near", is_wide=True),
    ]


def _rates(series: Series) -> Panel:
    wanted = [(criterion, Split.TARGET) for criterion in HEADLINE_CRITERIA] + [(Criterion.NEAR, Split.CONTROL)]
    lines = []
    for criterion, split in wanted:
        found = [(step, view.rate(criterion, split)) for step, view in zip(series.steps, series.views, strict=True)]
        points = tuple(Point.of(step, entry.rate) for step, entry in found if entry is not None)
        is_control = split is Split.CONTROL
        if points:
            lines.append(Line(f"{criterion}, control" if is_control else str(criterion), points, is_control))
    return Panel("", "windows", tuple(lines))


def _groups(series: Series) -> Mapping[str, Flags]:
    """The target windows by copies in training, most first; all together where no two numbers are known."""
    view, own = series.views[0], series.parts[0]
    copies_of = dict(zip(view.population.window_id, copies_of_windows(view), strict=True))
    copies = np.array([copies_of[window_id] for window_id in own.window_id], dtype=object)
    return by_copies(copies) or {"target windows": np.ones(len(own), dtype=np.bool_)}
