"""One model with several prompts: the mean mass over them and the largest, with the number that was tried.

Over a declared set Q of prompts a window has the mean mass (1/|Q|) Σ_q mass_q, that of a prompt picked at random, and
the maximum max_q mass_q, that of the best one. Bounds of both follow from those of the prompts. Nothing is claimed
about prompts outside of Q.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from byrote.report.analysis.comparison import RunComparison, common_budget
from byrote.report.analysis.rates import Criterion, places_of, rate_fields, split_rows, units_by_rank
from byrote.report.content import Cells, Drawing
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.view import RunView
from byrote.report.words import integer, interval_words, listed, percent, probability
from byrote.stats.clusters import rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Floats, Population
from byrote.types import Split

MEAN, MAXIMUM = "mean", "maximum"


class PromptRate(NamedTuple):
    """The share of a split's windows whose mass with a prompt, or over all `tried`, is at least τ."""

    prompt: str
    tried: int
    split: Split
    criterion: Criterion
    edits: int
    hits: int
    rate: Rate
    not_ruled_out: int
    """Windows whose upper bound is at least τ."""
    mass_lower: float
    """Mean over the windows of the lower bounds, and of the upper ones."""
    mass_upper: float

    @property
    def name(self) -> str:
        return self.prompt if self.tried == 1 else f"{self.prompt} of {self.tried} prompts"


def prompt_rates(views: Sequence[RunView], comparison: RunComparison) -> list[PromptRate]:
    """Each prompt, their mean and their maximum; empty unless one model was given the same windows with prompts that
    all differ."""
    prompts = [view.prompt for view in views]
    models = {view.manifest["model"].get("weights_hash") for view in views}
    if comparison.aligned is None or len(set(prompts)) < max(2, len(views)) or len(models) > 1:
        return []
    found: list[PromptRate] = []
    for split in Split:
        rows = np.logical_and.reduce([split_rows(population, split) for population in comparison.aligned])
        if rows.any():
            found += _rates(prompts, [each.select(rows) for each in comparison.aligned], split, views[0].threshold)
    return found


def _rates(prompts: Sequence[str], parts: Sequence[Population], split: Split, threshold: float) -> Iterator[PromptRate]:
    places = places_of(parts[0])
    for criterion, edits, bounds in _bounds(parts):
        lower, upper = (np.stack(side) for side in zip(*bounds, strict=True))  # [prompts, windows]
        series = [(name, 1, lower[row], upper[row]) for row, name in enumerate(prompts)]
        series.append((MEAN, len(prompts), lower.mean(axis=0), upper.mean(axis=0)))
        series.append((MAXIMUM, len(prompts), lower.max(axis=0), upper.max(axis=0)))
        for name, tried, low, high in series:
            hits = low >= threshold
            yield PromptRate(
                prompt=name,
                tried=tried,
                split=split,
                criterion=criterion,
                edits=edits,
                hits=int(hits.sum()),
                rate=rate_over_units(hits, units_by_rank(places, low)),
                not_ruled_out=int((high >= threshold).sum()),
                mass_lower=float(low.mean()),
                mass_upper=float(high.mean()),
            )


def _bounds(parts: Sequence[Population]) -> Iterator[tuple[Criterion, int, list[tuple[Floats, Floats]]]]:
    """Lower and upper bounds by prompt, of everything that all runs measured."""
    yield Criterion.VERBATIM, 0, [(part.verbatim(), part.verbatim_upper()) for part in parts]
    budget = common_budget(parts)
    uppers = [part.mass_upper for part in parts if part.mass_upper is not None]
    if len(uppers) == len(parts):
        near = [(part.mass(budget), upper[:, budget]) for part, upper in zip(parts, uppers, strict=True)]
        yield Criterion.NEAR, budget, near


def prompt_rows(rates: Sequence[PromptRate]) -> list[dict[str, Any]]:
    """prompts.csv."""
    return [
        {
            "prompt": row.prompt,
            "prompts_tried": row.tried,
            "split": row.split.value,
            "criterion": row.criterion.value,
            "edits": row.edits,
            **rate_fields(row.rate, row.hits),
            "not_ruled_out": row.not_ruled_out,
            "mass_lower": row.mass_lower,
            "mass_upper": row.mass_upper,
        }
        for row in rates
    ]


def prompt_cells(rates: Sequence[PromptRate]) -> list[Cells]:
    if not rates:
        return []
    heads = ("prompt", "texts", "criterion", "extractable", "95 % interval", "not ruled out", "mean mass")
    rows = tuple(
        (
            row.name,
            row.split.value,
            "verbatim" if row.criterion is Criterion.VERBATIM else f"near, ε ≤ {row.edits}",
            f"{percent(row.rate.value)} ({integer(row.hits)} of {integer(row.rate.n)})",
            interval_words(row.rate.interval) if row.rate.interval.is_defined else "none",
            integer(row.not_ruled_out),
            probability(row.mass_lower)
            if row.mass_lower == row.mass_upper
            else f"{probability(row.mass_lower)} to {probability(row.mass_upper)}",
        )
        for row in rates
    )
    note = (
        "Mean: the mass of a prompt picked at random among those tried. Maximum: the largest mass of any of them; it "
        "grows with the number tried, and nothing is said about other prompts."
    )
    return [Cells("prompts", "Prompts", heads, rows, note)]


def prompt_sentences(rates: Sequence[PromptRate]) -> list[str]:
    """What the prompts find together, of target windows by the strongest criterion measured."""
    own = [row for row in rates if row.split is Split.TARGET]
    own = [row for row in own if row.criterion is Criterion.NEAR] or own
    if not own:
        return []
    *each, mean, largest = own
    names = listed([f"{row.prompt} {percent(row.rate.value)}" for row in each], most=len(each))
    manner = f"within {own[0].edits} edits" if own[0].criterion is Criterion.NEAR else "word for word"
    return [
        f"Of {integer(largest.rate.n)} target windows, {percent(largest.rate.value)} come out {manner} with at least "
        f"one of the {largest.tried} prompts tried, and {percent(mean.rate.value)} by their mean mass; alone: {names}. "
        "Nothing is said about other prompts."
    ]


def prompt_drawings(rates: Sequence[PromptRate], threshold: float) -> Iterator[Drawing]:
    """A panel a criterion: every prompt, the mean and the maximum, targets beside controls."""
    if not rates:
        return
    names = list(dict.fromkeys(row.name for row in rates))
    panels = []
    for criterion in dict.fromkeys(row.criterion for row in rates):
        own = [row for row in rates if row.criterion is criterion]
        lines = tuple(
            Line(
                split.value,
                tuple(Point.of(names.index(row.name), row.rate) for row in own if row.split is split),
                is_control=split is Split.CONTROL,
            )
            for split in dict.fromkeys(row.split for row in own)
        )
        title = "Verbatim" if criterion is Criterion.VERBATIM else f"Near-verbatim, ε ≤ {own[0].edits}"
        panels.append(Panel(title, "windows with mass ≥ τ", lines))
    ticks = tuple((float(place), name.replace(" of ", "\nof ")) for place, name in enumerate(names))
    figure = overlay(panels, Setting("prompt", ticks, is_ordered=False))
    caption = (
        f"Share of windows with mass at least τ = {probability(threshold)}, by prompt, with 95 % intervals; mean and "
        "maximum are over the prompts shown and no others."
    )
    yield Drawing("prompts", caption, figure, "prompt", is_wide=True)
