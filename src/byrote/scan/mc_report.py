"""How samples of windows are shown: the mass of each with its interval, beside what a scan certified, and how it
settled with the number of samples.

Whether sampled hits agree with computed probabilities is an exact test per window, and one overall: if the
computation is right, k hits of M samples are binomial(M, p_z).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.stats import binom

from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Section, of_manifests
from byrote.report.figures.overlays import Level, Line, Panel, Point, Setting, overlay
from byrote.report.figures.style import BLUE, INK, VERMILLION, legend_above, log_axis, new_figure
from byrote.report.view import distinct_labels, model_name
from byrote.report.words import integer, listed, plural, policy_words, probability
from byrote.stats.clusters import FloatArray, IntArray
from byrote.stats.compare import holm
from byrote.stats.intervals import INTERVALS
from byrote.store.read import read_finished
from byrote.types import IntervalName

HEADS = ("window", "samples", "hits", "mass", "95 % interval")
NOT_CERTIFIED = "Masses are shares of samples, not certified; intervals hold at 95 % for each window by itself."
FIGURES = 6
MEETING = 1e-6

Rows = Sequence[Mapping[str, Any]]


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    runs, manifests = zip(*(read_finished(path, "mc") for path in paths), strict=True)
    labels = distinct_labels([model_name(manifest) for manifest in manifests], paths)
    names = ["masses"] if len(runs) == 1 else [f"masses-{number}" for number in range(1, len(runs) + 1)]
    by_run = [run.results.to_dicts() for run in runs]
    rows, config = list(chain.from_iterable(by_run)), manifests[0]["config"]
    edit = "character edit" if config.get("unit") == "text" else "token edit"
    return Content(
        kind="mc",
        label=listed(labels),
        headline=headline(rows),
        **of_manifests([(path.name, manifest) for path, manifest in zip(paths, manifests, strict=True)]),
        facts=(
            ("Model", listed(labels)),
            ("Answers sampled with", policy_words(config)),
            ("Near means", f"at most {plural(config['edit_budget'], edit)}"),
        ),
        tables=tuple(
            masses_table(own, name=name, title=label) for own, name, label in zip(by_run, names, labels, strict=True)
        ),
        sentences=(NOT_CERTIFIED, *agreement(rows)),
        draw=lambda: _drawings(rows, config["interval"]),
        data=lambda: {
            name: [{column: value for column, value in row.items() if not isinstance(value, list)} for row in own]
            for name, own in zip(names, by_run, strict=True)
        },
    )


def headline(rows: Rows) -> str:
    samples = f"{integer(sum(row['samples'] for row in rows))} plain samples of {plural(len(rows), 'window')}"
    known = certified(rows)
    if not known:
        return f"{samples}."
    return f"{samples}; in {integer(agreeing(known))} of {integer(len(known))} they agree with the certified bounds."


def certified(rows: Rows) -> Rows:
    """Those that a scan has bounds of."""
    return [row for row in rows if row["certified_upper"] is not None]


def agreeing(rows: Rows) -> int:
    """Windows whose interval shares a value with their certified bounds."""
    return sum(row["mass_low"] <= row["certified_upper"] and row["certified_lower"] <= row["mass_high"] for row in rows)


def masses_table(rows: Rows, *, name: str = "masses", title: str = "Monte Carlo: sampled, not certified") -> Cells:
    has_bounds = any(row["certified_upper"] is not None for row in rows)
    cells = []
    for row in rows:
        lower, upper = row["certified_lower"], row["certified_upper"]
        bounds = "–" if upper is None else f"{probability(lower)} to {probability(upper)}"
        cells.append(
            (
                row["window_id"],
                integer(row["samples"]),
                integer(row["hits"]),
                probability(row["mass"]),
                f"{probability(row['mass_low'])} to {probability(row['mass_high'])}",
                *([bounds] if has_bounds else []),
            )
        )
    return Cells(name, title, HEADS + (("certified",) if has_bounds else ()), tuple(cells))


def agreement(rows: Rows) -> list[str]:
    """Whether intervals and certified bounds share a value, where a scan has bounds, and empirical against computed
    probability, where the latter is known exactly."""
    known = certified(rows)
    if not known:
        return []
    shared = integer(agreeing(known))
    sentences = [f"In {shared} of {plural(len(known), 'window')} interval and certified bounds share a value."]
    # Where bounds meet, up to rounding, hits are binomial with that very probability.
    exact = [row for row in known if row["certified_upper"] * (1 - MEETING) <= row["certified_lower"]]
    if exact:
        columns = ([row[name] for row in exact] for name in ("certified_upper", "hits", "samples"))
        found = check_sampling(*columns)
        words = f"and {found.reason}"
        if not math.isnan(found.overall_p_value):
            verdict = "agree with it" if found.agrees() else "do not agree with it"
            words = f"the samples {verdict} (exact binomial tests, overall p = {found.overall_p_value:.2g})"
        comma = "," if math.isnan(found.overall_p_value) else ";"
        sentences.append(f"In {plural(len(exact), 'window')} the mass is known exactly{comma} {words}.")
    return sentences


def _drawings(rows: Rows, interval: IntervalName) -> Iterable[Drawing]:
    if known := certified(rows):
        names = ("certified_lower", "certified_upper", "mass", "mass_low", "mass_high")
        figure = sampled_against_computed([tuple(row[name] for name in names) for row in known])
        caption = "Share of samples against the computed mass of every window; on the dashed line they are equal."
        yield Drawing("sampled-against-computed", caption, figure)
    for number, row in enumerate(rows[:FIGURES], 1):
        panel = convergence(row, interval, over="curve_evals")
        words = f"the estimate as samples are added, with its 95 % interval ({interval}), against what is certified."
        figure = overlay([panel], Setting("token evaluations", is_log=True))
        figure.set_size_inches(5.6, 3.4)  # flatter than a panel among others: several stand below each other on paper
        yield Drawing(f"samples-{number}", f"{row['window_id']}: {words}", figure)


def convergence(row: Mapping[str, Any], interval: IntervalName, *, over: str) -> Panel:
    """A window's share of hits as samples are added, against its certified bounds; `over` is the column of the axis."""
    points = []
    for place, hits, samples in zip(row[over], row["curve_hits"], row["curve_samples"], strict=True):
        low, high, *_ = INTERVALS[interval](int(hits), int(samples))
        points.append(Point(place, hits / samples, low, high))
    lower, upper = row["certified_lower"], row["certified_upper"]
    levels = () if upper is None else (Level("certified bounds", lower, upper),)
    return Panel(row["window_id"], "near-verbatim mass", (Line("sampled", tuple(points)),), levels, is_share=False)


SECTION = Section(read)


@dataclass(frozen=True, eq=False)
class SamplingCheck:
    """How well sampled hits agree with computed probabilities."""

    adjusted: FloatArray
    """Per window, the exact two-sided p-value after Holm's correction; NaN where nothing was sampled."""
    overall_p_value: float
    """Of Σ (k − Mp)²/(Mp(1 − p)), against simulations of the same windows: finds small errors spread over many
    windows. NaN when no window could vary."""
    reason: str | None
    """Why the overall p-value is NaN."""

    def agrees(self, significance: float = 0.01) -> bool:
        """Neither the overall test nor any window (corrected) rejects; false alarm at most 2 × significance."""
        return not (self.overall_p_value <= significance or (self.adjusted <= significance).any())


def check_sampling(
    probabilities: ArrayLike, hits: ArrayLike, samples: ArrayLike, *, seed: int = 0, simulations: int = 2000
) -> SamplingCheck:
    """Compare k hits in M samples per window with the computed probabilities."""
    p = np.asarray(probabilities, dtype=np.float64)
    k = np.asarray(hits, dtype=np.int64)
    m = np.broadcast_to(np.asarray(samples, dtype=np.int64), k.shape)
    overall = _overall_p_value(p, k, m, generator=np.random.default_rng(seed), simulations=simulations)
    reason = "no window was sampled whose outcome could vary" if math.isnan(overall) else None
    return SamplingCheck(holm(binomial_p_values(p, k, m)), overall, reason)


def binomial_p_values(probabilities: FloatArray, hits: IntArray, samples: IntArray) -> FloatArray:
    """Twice the smaller exact tail, at most 1; NaN for windows without samples."""
    at_least, at_most = binom.sf(hits - 1, samples, probabilities), binom.cdf(hits, samples, probabilities)
    two_sided = np.minimum(1.0, 2.0 * np.minimum(at_least, at_most))
    return np.asarray(np.where(samples == 0, np.nan, two_sided))


def _overall_p_value(
    p: FloatArray, k: IntArray, m: IntArray, *, generator: np.random.Generator, simulations: int
) -> float:
    """The share of simulated runs (the observed one among them) whose statistic is at least the observed one."""
    can_vary = (m > 0) & (p > 0.0) & (p < 1.0)
    if not can_vary.any():
        return math.nan
    chance, trials, seen = p[can_vary], m[can_vary], k[can_vary]
    mean, variance = trials * chance, trials * chance * (1.0 - chance)
    observed = float(np.sum((seen - mean) ** 2 / variance))
    as_extreme = 1
    for _ in range(simulations):
        drawn = generator.binomial(trials, chance)
        as_extreme += float(np.sum((drawn - mean) ** 2 / variance)) >= observed
    return as_extreme / (simulations + 1)


def sampled_against_computed(windows: Sequence[Sequence[float]]) -> Figure:
    """Every window's sampled mass against the computed one, log-log: bars that miss the diagonal disagree.

    A window is (computed lower, upper, share of samples, its interval's low, high).
    """
    figure, axes = new_figure()
    every = np.array(windows)
    floor = min(every[every > 0], default=0.1) / 2
    for lower, upper, sampled, low, high in np.maximum(every, floor):
        middle = (lower * upper) ** 0.5
        axes.hlines(sampled, lower, upper, color=BLUE, alpha=0.5, linewidth=1.6)
        axes.vlines(middle, low, high, color=VERMILLION, alpha=0.5, linewidth=1.6)
        axes.plot(middle, sampled, "o", color=VERMILLION)
    axes.plot([floor, 1], [floor, 1], color=INK, linewidth=0.8, linestyle="--", label="sampled = computed")
    axes.plot([], [], color=BLUE, alpha=0.5, label="certified bounds")
    axes.plot([], [], color=VERMILLION, alpha=0.5, label="95 % interval of the share")
    log_axis(axes, "both")
    axes.grid(visible=True, axis="both")
    axes.set(xlabel="computed mass (0 at the left edge)", ylabel="share of samples (0 at the bottom)")
    legend_above(axes)
    return figure
