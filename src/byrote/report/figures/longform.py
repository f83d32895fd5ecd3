"""Whole works: nv-recall per book, where its blocks lie, and matched, missing and additional words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import MaxNLocator

from byrote.report.figures.style import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SERIES,
    SOFT,
    VERMILLION,
    decade,
    house_style,
    label_point,
    legend_above,
    log_axis,
    new_figure,
    percent_axis,
    value_grid,
)


@dataclass(frozen=True)
class Recall:
    """nv-recall of one generation: words matched, of the book and of the generation, and the longest block."""

    label: str
    matched: int
    book_words: int
    generated_words: int
    longest_block: int
    is_control: bool = False

    @property
    def recall(self) -> float:
        return self.matched / self.book_words if self.book_words else float("nan")


@house_style()
def recall_bars(recalls: Sequence[Recall]) -> Figure:
    """nv-recall as horizontal bars, each labelled with its share and its longest block."""
    figure, axes = new_figure(6.0, 0.42 * len(recalls) + 1.0)
    positions = np.arange(len(recalls))[::-1]
    colours = [SOFT if one.is_control else VERMILLION for one in recalls]
    axes.barh(positions, [one.recall for one in recalls], height=0.6, color=colours)
    for position, one in zip(positions, recalls, strict=True):
        longest = f"{one.longest_block:,}".replace(",", "\u2009")
        note = f"{100 * one.recall:.1f} %; longest passage {longest} words" if one.generated_words else "phase 1 failed"
        label_point(axes, note, (one.recall, position), offset=(4, 0), va="center", fontsize=8, color=INK)
    axes.set_yticks(positions, [one.label for one in recalls])
    axes.set_xlim(0, 1.38)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    value_grid(axes)
    percent_axis(axes, "x")
    axes.set_xlabel("nv-recall: share of the book's words")
    return figure


@dataclass(frozen=True)
class MatchBlock:
    """A matched stretch: word positions in book and generation, and the extent in each."""

    book_start: int
    book_end: int
    generation_start: int
    generation_end: int


@house_style()
def block_map(blocks: Sequence[MatchBlock], *, book_words: int, generated_words: int) -> Figure:
    """Book above, generation below, each as a bar of its words; every matched block joined across."""
    figure = Figure(figsize=(8.6, 2.4), layout="constrained")
    book, generation = figure.subplots(2, 1)
    for axes, words, name in [(book, book_words, "book"), (generation, generated_words, "generation")]:
        axes.set_xlim(0, max(words, 1))
        axes.set_ylim(0, 1)
        axes.axhspan(0.25, 0.75, color=FAINT, linewidth=0)
        axes.set_yticks([0.5], [name])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    for index, block in enumerate(sorted(blocks, key=lambda one: one.book_start)):
        colour = SERIES[index % len(SERIES)]
        book.axvspan(block.book_start, block.book_end, 0.25, 0.75, color=colour, linewidth=0)
        generation.axvspan(block.generation_start, block.generation_end, 0.25, 0.75, color=colour, linewidth=0)
        start = ((block.book_start + block.book_end) / 2, 0.25)
        end = ((block.generation_start + block.generation_end) / 2, 0.75)
        look: dict[str, Any] = {"color": colour, "alpha": 0.5, "linewidth": 0.8}
        figure.add_artist(ConnectionPatch(start, end, "data", "data", axesA=book, axesB=generation, **look))
    book.xaxis.tick_top()
    generation.set_xlabel("words")
    return figure


@house_style()
def word_counts(recalls: Sequence[Recall]) -> Figure:
    """Matched, missing and additional words, one stacked bar per generation."""
    figure, axes = new_figure(6.0, 0.42 * len(recalls) + 1.3)
    positions = np.arange(len(recalls))[::-1]
    left = np.zeros(len(recalls))
    parts = [
        ("matched", BLUE, [one.matched for one in recalls]),
        ("missing", SOFT, [one.book_words - one.matched for one in recalls]),
        ("added", ORANGE, [one.generated_words - one.matched for one in recalls]),
    ]
    for label, colour, values in parts:
        axes.barh(positions, values, left=left, height=0.6, color=colour, label=label)
        left = left + np.array(values, dtype=float)
    axes.set_yticks(positions, [one.label for one in recalls])
    value_grid(axes)
    axes.set_xlabel("words")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


@dataclass(frozen=True)
class Tries:
    """Similarity of each try of phase 1, in order."""

    label: str
    similarities: tuple[float, ...]


@house_style()
def similarity_by_tries(series: Sequence[Tries], *, threshold: float) -> Figure:
    """Every try as a dot, the best so far as a step; log axis where there are many tries."""
    figure, axes = new_figure(6.0, 3.2)
    for index, one in enumerate(series):
        colour = SERIES[index % len(SERIES)]
        numbers = np.arange(1, len(one.similarities) + 1)
        axes.scatter(numbers, one.similarities, s=9, color=colour, alpha=0.45, linewidths=0)
        axes.step(numbers, np.maximum.accumulate(one.similarities), where="post", color=colour, label=one.label)
    axes.axhline(threshold, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    beside = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": "center", "fontsize": 8, "color": SOFT}
    label_point(axes, "needed\nto go on", (1, threshold), offset=(4, 0), **beside)
    tries = max(len(one.similarities) for one in series)
    axes.set_xlim(0.8, tries + 0.5)
    if tries > 50:
        log_axis(axes, "x")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(-0.03, 1.06)
    percent_axis(axes)
    axes.set_xlabel("tries of phase 1")
    axes.set_ylabel("target found in one run")
    if len(series) > 1:
        legend_above(axes)
    return figure


@dataclass(frozen=True)
class Likeness:
    """How much of one book one text has: nv-recall, and the words of its longest passage or run."""

    nv_recall: float
    longest: int


NONE_AT = 0.3
"""Where 0 words stand on a logarithmic axis."""


@house_style()
def null_distribution(null: Sequence[Likeness], found: Sequence[Likeness]) -> Figure:
    """Answers measured against unrelated control books, which shows chance, and against their own book.

    Left nv-recall, right the longest run (of controls) or passage (of trials) in words, on a log axis that holds 0 too.
    """
    groups = [
        (f"controls, by chance ({len(null)})", SOFT, "o", null),
        (f"this book ({len(found)})", VERMILLION, "D", found),
    ]
    figure = Figure(figsize=(6.4, 2.0), layout="constrained")
    shares, runs = figure.subplots(1, 2, sharey=True)
    for row, (_, colour, marker, points) in enumerate(groups):
        # Spread upwards, so that equal values are seen.
        heights = 1 - row + np.linspace(-0.18, 0.18, len(points)) if len(points) > 1 else [1 - row] * len(points)
        dots = {"s": 22, "color": colour, "marker": marker, "alpha": 0.65, "linewidths": 0}
        shares.scatter([one.nv_recall for one in points], heights, **dots)
        runs.scatter([one.longest or NONE_AT for one in points], heights, **dots)
    shares.set_xlim(-0.03, 1.03)
    percent_axis(shares, "x")
    shares.set_xlabel("nv-recall")
    shares.set_yticks([1, 0], [group[0] for group in groups])
    shares.set_ylim(-0.5, 1.5)
    log_axis(runs, "x")
    decades = [10.0**power for power in range(len(str(max(one.longest for one in (*null, *found)))) + 1)]
    runs.set_xticks([NONE_AT, *decades], ["0", *map(decade, decades)])
    runs.set_xlim(NONE_AT * 0.7, decades[-1])
    runs.set_xlabel("longest run or passage (words)")
    for axes in (shares, runs):
        value_grid(axes)
    return figure
