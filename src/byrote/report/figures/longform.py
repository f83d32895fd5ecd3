"""Whole works: nv-recall per book, where its blocks lie, and matched, missing and additional words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import MaxNLocator

from byrote.report.figures import style


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


def recall_bars(recalls: Sequence[Recall]) -> Figure:
    """nv-recall as horizontal bars, each labelled with its share and its longest block."""
    figure, axes = style.new_figure(6.0, 0.42 * len(recalls) + 1.0)
    positions = np.arange(len(recalls))[::-1]
    colours = [style.SOFT if one.is_control else style.VERMILLION for one in recalls]
    axes.barh(positions, [one.recall for one in recalls], height=0.6, color=colours)
    for position, one in zip(positions, recalls, strict=True):
        longest = f"{one.longest_block:,}".replace(",", "\u2009")
        note = f"{100 * one.recall:.1f} %; longest passage {longest} words" if one.generated_words else "phase 1 failed"
        style.label_point(axes, note, (one.recall, position), offset=(4, 0), va="center", fontsize=8, color=style.INK)
    axes.set_yticks(positions, [one.label for one in recalls])
    axes.set(xlabel="nv-recall: share of the book's words", xlim=(0, 1.38), xticks=[0, 0.25, 0.5, 0.75, 1])
    style.value_grid(axes)
    style.percent_axis(axes, "x")
    return figure


def block_map(blocks: Sequence[Sequence[int]], *, book_words: int, generated_words: int) -> Figure:
    """Book above, generation below, each as a bar of its words; every matched block joined across.

    A block is (start, end) in the words of the book and (start, end) in those of the generation.
    """
    figure = Figure(figsize=(8.6, 2.4), layout="constrained")
    book, generation = figure.subplots(2, 1)
    for axes, words, name in [(book, book_words, "book"), (generation, generated_words, "generation")]:
        axes.set(xlim=(0, max(words, 1)), ylim=(0, 1))
        axes.axhspan(0.25, 0.75, color=style.FAINT, linewidth=0)
        axes.set_yticks([0.5], [name])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
    for index, (book_start, book_end, start, end) in enumerate(sorted(blocks, key=lambda block: block[0])):
        colour = style.SERIES[index % len(style.SERIES)]
        book.axvspan(book_start, book_end, 0.25, 0.75, color=colour, linewidth=0)
        generation.axvspan(start, end, 0.25, 0.75, color=colour, linewidth=0)
        middles = ((book_start + book_end) / 2, 0.25), ((start + end) / 2, 0.75)
        look: dict[str, Any] = {"color": colour, "alpha": 0.5, "linewidth": 0.8}
        figure.add_artist(ConnectionPatch(*middles, "data", "data", axesA=book, axesB=generation, **look))
    book.xaxis.tick_top()
    generation.set_xlabel("words")
    return figure


def word_counts(recalls: Sequence[Recall]) -> Figure:
    """Matched, missing and additional words, one stacked bar per generation."""
    figure, axes = style.new_figure(6.0, 0.42 * len(recalls) + 1.3)
    positions = np.arange(len(recalls))[::-1]
    left = np.zeros(len(recalls))
    parts = [
        ("matched", style.BLUE, [one.matched for one in recalls]),
        ("missing", style.SOFT, [one.book_words - one.matched for one in recalls]),
        ("added", style.ORANGE, [one.generated_words - one.matched for one in recalls]),
    ]
    for label, colour, values in parts:
        axes.barh(positions, values, left=left, height=0.6, color=colour, label=label)
        left = left + np.array(values, dtype=float)
    axes.set_yticks(positions, [one.label for one in recalls])
    style.value_grid(axes)
    axes.set_xlabel("words")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def similarity_by_tries(series: Sequence[tuple[str, Sequence[float]]], *, threshold: float) -> Figure:
    """Every try as a dot, the best so far as a step; log axis where there are many tries.

    `series` holds (label, similarity of each try of phase 1 in order).
    """
    figure, axes = style.new_figure(6.0, 3.2)
    for index, (label, similarities) in enumerate(series):
        colour = style.SERIES[index % len(style.SERIES)]
        numbers = np.arange(1, len(similarities) + 1)
        axes.scatter(numbers, similarities, s=9, color=colour, alpha=0.45, linewidths=0)
        axes.step(numbers, np.maximum.accumulate(similarities), where="post", color=colour, label=label)
    axes.axhline(threshold, color=style.INK, linewidth=0.8, linestyle=(0, (4, 3)))
    beside = {"xycoords": ("axes fraction", "data"), "ha": "left", "va": "center", "fontsize": 8, "color": style.SOFT}
    style.label_point(axes, "needed\nto go on", (1, threshold), offset=(4, 0), **beside)
    tries = max(len(similarities) for _, similarities in series)
    axes.set_xlim(0.8, tries + 0.5)
    if tries > 50:
        style.log_axis(axes, "x")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="tries of phase 1", ylabel="target found in one run", ylim=(-0.03, 1.06))
    style.percent_axis(axes)
    if len(series) > 1:
        style.legend_above(axes)
    return figure


NONE_AT = 0.3
"""Where 0 words stand on a logarithmic axis."""


def null_distribution(null: Sequence[tuple[float, int]], found: Sequence[tuple[float, int]]) -> Figure:
    """Answers measured against unrelated control books, which shows chance, and against their own book.

    Each is (nv-recall, words of the longest run of a control or passage of a trial): left nv-recall, right the words
    on a log axis that holds 0 too.
    """
    groups = [
        (f"controls, by chance ({len(null)})", style.SOFT, "o", null),
        (f"this book ({len(found)})", style.VERMILLION, "D", found),
    ]
    figure = Figure(figsize=(6.4, 2.0), layout="constrained")
    shares, runs = figure.subplots(1, 2, sharey=True)
    for row, (_, colour, marker, points) in enumerate(groups):
        # Spread upwards, so that equal values are seen.
        heights = 1 - row + np.linspace(-0.18, 0.18, len(points)) if len(points) > 1 else [1 - row] * len(points)
        dots = {"s": 22, "color": colour, "marker": marker, "alpha": 0.65, "linewidths": 0}
        shares.scatter([nv_recall for nv_recall, _ in points], heights, **dots)
        runs.scatter([longest or NONE_AT for _, longest in points], heights, **dots)
    shares.set_yticks([1, 0], [group[0] for group in groups])
    shares.set(xlabel="nv-recall", xlim=(-0.03, 1.03), ylim=(-0.5, 1.5))
    style.percent_axis(shares, "x")
    style.log_axis(runs, "x")
    decades = [10.0**power for power in range(len(str(max(longest for _, longest in (*null, *found)))) + 1)]
    runs.set_xticks([NONE_AT, *decades], ["0", *map(style.decade, decades)])
    runs.set(xlabel="longest run or passage (words)", xlim=(NONE_AT * 0.7, decades[-1]))
    style.value_grid(shares)
    style.value_grid(runs)
    return figure
