"""How well each score of a run separates targets from controls: area under the curve, hits at few false positives."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from byrote.report.analysis.rates import parts_of, places_of, split_rows
from byrote.report.content import Cells, Content, Drawing
from byrote.report.figures import style
from byrote.report.tables import rates_cells
from byrote.report.view import RunView
from byrote.report.words import integer, listed, share_words
from byrote.stats.clusters import choose_units, rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Floats
from byrote.stats.roc import RocCurve, Separation, found_at, placements, roc_curve, separation
from byrote.types import Split

FALSE_POSITIVE_RATES = (0.001, 0.01)
SIGNS = {"loss": -1.0, "zlib_ratio": -1.0, "min_k": 1.0, "min_k_plus_plus": 1.0, "reference_ratio": -1.0}
"""Columns of membership scores; −1 where low values speak for membership."""
NAMES = {
    "loss": "loss",
    "zlib_ratio": "loss / zlib",
    "min_k": "Min-K %",
    "min_k_plus_plus": "Min-K %++",
    "reference_ratio": "against a reference model",
    "log_p_verbatim": "verbatim probability",
    "near": "near-verbatim mass",
}


class ScoreSeparation(NamedTuple):
    """One score: its curve, its area, and the share of targets found at each of FALSE_POSITIVE_RATES."""

    score: str
    targets: int
    controls: int
    curve: RocCurve
    area: Separation
    found: tuple[Rate, ...]


def separations(view: RunView) -> list[ScoreSeparation]:
    """Every score of a run that has membership scores, where both sides have some; nothing otherwise."""
    found = []
    for name, values in _scores(view).items():
        # Not a number: no reference model, or a suffix that neither model can generate.
        sides = [split_rows(view.population, split) & ~np.isnan(values) for split in Split]
        if not all(side.any() for side in sides):
            continue
        targets, controls = (values[side] for side in sides)
        placed = placements(targets, controls), placements(controls, targets)
        units = [
            choose_units(places_of(view.population.select(side)), own) for side, own in zip(sides, placed, strict=True)
        ]
        hits = (found_at(targets, controls, rate).astype(np.float64) for rate in FALSE_POSITIVE_RATES)
        rates = tuple(rate_over_units(own, units[0]) for own in hits)
        curve, area = roc_curve(targets, controls), separation(targets, controls, *units)
        found.append(ScoreSeparation(name, len(targets), len(controls), curve, area, rates))
    return found


def _scores(view: RunView) -> dict[str, Floats]:
    """By name, high values speaking for membership; a null is NaN."""
    names = [name for name in SIGNS if name in view.results.columns]
    scores = {name: view.results[name].to_numpy().astype(np.float64) * SIGNS[name] for name in names}
    population = view.population
    if scores and population.log_p_verbatim is not None:
        scores["log_p_verbatim"] = population.log_p_verbatim
    if scores and population.mass_lower is not None:
        scores["near"] = population.log_mass(population.edit_budget)
    return scores


def separation_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run and score, where runs have membership scores and both sides."""
    rows = []
    for label, entry in ((view.label, entry) for view in views for entry in separations(view)):
        row: dict[str, Any] = {
            "run": label,
            "score": entry.score,
            "targets": entry.targets,
            "controls": entry.controls,
            "auc": entry.area.auc,
            "auc_low": entry.area.interval.low,
            "auc_high": entry.area.interval.high,
            "note": entry.area.interval.reason,
        }
        for rate, found in zip(FALSE_POSITIVE_RATES, entry.found, strict=True):
            name = f"found_at_{rate:g}"
            row |= {name: found.value, f"{name}_low": found.interval.low, f"{name}_high": found.interval.high}
        rows.append(row)
    return rows


def separation_cells(views: Sequence[RunView]) -> list[Cells]:
    """The same in words; nothing without membership scores."""
    entries = [(view, entry) for view in views for entry in separations(view)]
    if not entries:
        return []
    rows = []
    for view, entry in entries:
        interval = entry.area.interval
        ends = f" ({interval.low:.3f} to {interval.high:.3f})" if interval.is_defined else ""
        row = (NAMES[entry.score], f"{entry.area.auc:.3f}{ends}", *map(share_words, entry.found))
        rows.append(row if len(views) == 1 else (view.label, *row))
    found = tuple(f"found at {rate * 100:g} % false positives" for rate in FALSE_POSITIVE_RATES)
    heads = ("score", "AUC", *found) if len(views) == 1 else ("run", "score", "AUC", *found)
    note = f"{few_controls_words(min(entry.controls for _, entry in entries))}."
    return [Cells("membership", "Telling targets from controls", heads, tuple(rows), note)]


def few_controls_words(controls: int) -> str:
    """What the number of controls can show: a rate below 1/n is none at all."""
    coarse = [f"{rate * 100:g} %" for rate in FALSE_POSITIVE_RATES if rate < 1 / controls]
    if not coarse:
        return f"{controls:,} control windows"
    return f"{controls:,} control windows: at {' and '.join(coarse)} no false positive is allowed at all"


LINE_POINTS = 200
COLOURS = (style.SKY, style.ORANGE, style.GREEN, style.PURPLE, style.INK, style.BLUE, style.VERMILLION)


def drawn_curve(curve: RocCurve, edge: float) -> RocCurve:
    """The curve on a logarithmic axis that begins at `edge`. Where targets and controls are tied it rises in a straight
    line between two rates, which only points in between can show there."""
    between = np.geomspace(edge, 1.0, LINE_POINTS)
    false = np.concatenate([np.maximum(curve.false_positives, edge), between])
    true = np.concatenate([curve.true_positives, np.interp(between, *curve)])
    order = np.lexsort([true, false])
    return RocCurve(false[order], true[order])


def roc_curves(entries: Sequence[ScoreSeparation], *, title: str = "") -> Figure:
    """One line per score, from the least rate that the controls can show; dashed is what chance gives."""
    figure, axes = style.new_figure(height=4.2)
    least = 1 / max(entry.controls for entry in entries)
    for entry, colour in zip(entries, COLOURS, strict=False):
        # Without a false positive a curve lies left of a logarithmic axis: it enters at its edge.
        false, true = drawn_curve(entry.curve, least / 2)
        axes.plot(false, true, color=colour, label=f"{NAMES[entry.score]}, AUC {entry.area.auc:.3f}", linewidth=1.6)
    diagonal = np.geomspace(least / 2, 1.0, 50)
    axes.plot(diagonal, diagonal, "--", color=style.SOFT, linewidth=1, label="chance")
    for rate in FALSE_POSITIVE_RATES:
        if rate >= least / 2:
            axes.axvline(rate, color=style.SOFT, linewidth=0.8, linestyle=":")
    style.log_axis(axes, "x")
    style.percent_axis(axes)
    axes.set_xlim(least / 2, 1.0)
    axes.set_ylim(-0.01, 1.02)
    axes.set_xlabel("share of control windows above the threshold")
    axes.set_ylabel("share of target windows above it")
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    style.legend_above(axes)
    return figure


def membership_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """One figure for every run that has membership scores and both sides."""
    drawings = []
    for index, view in enumerate(views):
        entries = separations(view)
        if entries:
            caption = (
                "How well each score tells target windows from controls: the share of targets above a threshold "
                "against the share of controls above it, which is 0 at the left edge. Straight rises, bent by the "
                f"logarithmic axis, are ties. {few_controls_words(entries[0].controls)}; intervals are in the table."
            )
            suffix, title = (f"-run{index + 1}", view.label) if len(views) > 1 else ("", "")
            drawings.append(Drawing(f"membership{suffix}", caption, roc_curves(entries, title=title), "membership"))
    return drawings


NO_MASSES = (
    "Nothing here says how likely a passage is to come out: the scan measured no probabilities. "
    "For those, scan with --measures verbatim,near."
)


def membership_content(common: Content, views: Sequence[RunView]) -> Content:
    """Scans without probabilities, under each other; runs with probabilities among them show the same part."""
    sentences: tuple[str, ...] = (
        NO_MASSES,
        "Of several scores the best was named; its interval does not allow for that choice.",
        "A score that separates is no proof of training: texts that differ in date or style differ in scores too.",
    )
    rows = {view.label: separation_rows([view]) for view in views}
    answered = [view for view in views if view.population.has_masses or view.population.greedy_distance is not None]
    if not any(rows.values()):
        without = "No score can be judged without controls: give text the model cannot have seen (--control)."
        sentences = (NO_MASSES, without)
    return replace(
        common,
        headline=" ".join(map(_headline, views)),
        tables=(*([rates_cells(answered)] if answered else ()), *separation_cells(views), *_score_cells(views)),
        sentences=sentences,
        draw=lambda: membership_drawings(views),
        numbers={label: {"membership": own} for label, own in rows.items()},
    )


def _headline(view: RunView) -> str:
    windows = " and ".join(f"{integer(len(part))} {split}" for split, part in parts_of(view.population).items())
    entries = separations(view)
    if not entries:
        return f"{view.model}: {windows} windows, without probabilities of passages."
    most = max(entry.area.auc for entry in entries)
    best = [entry for entry in entries if entry.area.auc == most]
    interval = best[0].area.interval
    ends = f"95 % interval {interval.low:.3f} to {interval.high:.3f}" if interval.is_defined else "no interval"
    return (
        f"{view.model}: {windows} windows. Of the membership scores, {listed([NAMES[entry.score] for entry in best])} "
        f"{'tells' if len(best) == 1 else 'tell'} targets from controls best (AUC {most:.3f}, {ends})."
    )


def _score_cells(views: Sequence[RunView]) -> list[Cells]:
    """Each score's median and quartiles, which need no controls."""
    rows = []
    for view in views:
        for split in parts_of(view.population):
            own = view.results.filter(pl.Series(split_rows(view.population, split)))
            for name in (name for name in SIGNS if name in own.columns):
                known = own[name].drop_nulls().drop_nans()
                ends = [known.quantile(share, "linear") for share in (0.25, 0.5, 0.75)]
                words = ["–" if end is None else f"{end:.4g}" for end in ends]
                rows.append((f"{view.label}, {split.value}", NAMES[name], integer(len(known)), *words))
    heads = ("run", "score", "windows", "lower quartile", "median", "upper quartile")
    note = "Low losses and ratios speak for membership, and so do high values of the two Min-K scores."
    return [Cells("scores", "Membership scores", heads, tuple(rows), note)] if rows else []
