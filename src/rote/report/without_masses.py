"""Scans that hold no probabilities of passages: membership scores alone, greedy answers alone, or both."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from rote.report.content import Cells, Content
from rote.report.rates import split_rows, splits_of, units_of
from rote.report.separation import NAMES, SIGNS, separation_cells, separation_row, separations
from rote.report.summary import facts, notices
from rote.report.view import RunView, manifest_text
from rote.report.words import integer, interval_words, listed, percent
from rote.stats.clustered import rate_over_units
from rote.types import Split

if TYPE_CHECKING:  # a terminal does not wait for drawing
    from rote.report.drawing import Drawing

LISTED_IN_MANIFEST = 50
NO_MASSES = (
    "Nothing here says how likely a passage is to come out: the scan measured no probabilities. "
    "For those, scan with --measures verbatim,near."
)


def content_without_masses(views: Sequence[RunView]) -> Content:
    """What such scans say, under each other; runs with probabilities among them show the same part of theirs."""
    return Content(
        kind="scan",
        label=listed([view.label for view in views]),
        headline=" ".join(_headline(view) for view in views),
        facts=tuple((fact.name, fact.value) for fact in facts(views[0])),
        notices=tuple(notices(views)),
        tables=(*_greedy(views), *separation_cells(views), *_scores(views)),
        sentences=_sentences(views),
        draw=lambda: _draw(views),
        manifests=tuple((view.path.name, manifest_text(view, LISTED_IN_MANIFEST)) for view in views),
        numbers={
            view.label: {"membership": [separation_row(view, entry) for entry in separations(view)]} for view in views
        },
    )


def _headline(view: RunView) -> str:
    counts = {split: int(split_rows(view.population, split).sum()) for split in splits_of(view.population)}
    windows = " and ".join(f"{integer(count)} {split.value}" for split, count in counts.items())
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


def _sentences(views: Sequence[RunView]) -> tuple[str, ...]:
    if not any(map(separations, views)):
        return (NO_MASSES, "No score can be judged without controls: give text the model cannot have seen (--control).")
    return (
        NO_MASSES,
        "Of several scores the best was named; its interval does not allow for that choice.",
        "A score that separates is no proof of training: texts that differ in date or style differ in scores too.",
    )


def _greedy(views: Sequence[RunView]) -> list[Cells]:
    rows = [row for view in views for split in splits_of(view.population) for row in _greedy_row(view, split)]
    heads = ("run", "windows", "greedy answer is the passage", "95 % interval")
    return [Cells("greedy", "Greedy answers", heads, tuple(rows))] if rows else []


def _greedy_row(view: RunView, split: Split) -> Iterator[tuple[str, ...]]:
    part = view.population.select(split_rows(view.population, split))
    if part.greedy_distance is not None:
        hits = part.greedy_distance == 0
        rate = rate_over_units(hits, units_of(part))
        yield f"{view.label}, {split.value}", integer(rate.n), percent(rate.value), interval_words(rate.interval)


def _scores(views: Sequence[RunView]) -> list[Cells]:
    """Each score's median and quartiles: what there is to see without controls too."""
    rows = []
    for view in views:
        for split in splits_of(view.population):
            own = view.results.filter(pl.Series(split_rows(view.population, split)))
            for name in (name for name in SIGNS if name in own.columns):
                known = own[name].drop_nulls().drop_nans()
                ends = [known.quantile(share, "linear") for share in (0.25, 0.5, 0.75)]
                words = ["–" if end is None else f"{end:.4g}" for end in ends]
                rows.append((f"{view.label}, {split.value}", NAMES[name], integer(len(known)), *words))
    heads = ("run", "score", "windows", "lower quartile", "median", "upper quartile")
    note = "Low losses and ratios speak for membership, and so do high values of the two Min-K scores."
    return [Cells("scores", "Membership scores", heads, tuple(rows), note)] if rows else []


def _draw(views: Sequence[RunView]) -> Iterable["Drawing"]:
    from rote.report.membership_figures import membership_drawings

    return membership_drawings(views)
