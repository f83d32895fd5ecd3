"""How a counterfactual study is shown: the correlation, means by level, every (target, level) as a point."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from byrote.lab.counterfactual import Correlation, CounterfactualResult, level_columns, level_means, read_counterfactual
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Section
from byrote.report.words import listed
from byrote.store.read import read_run

LEVEL_COLUMNS = {
    "copies": ("copies", ".0f"),
    "near_duplicates": ("near-duplicates", ".0f"),
    "occurrences_from": ("occurrences from", ".0f"),
    "counterfactual": ("counterfactual", ".2f"),
    "log_ratio": ("log ratio", ".2f"),
    "log_p_with": ("log P with", ".2f"),
    "log_p_without": ("without", ".2f"),
}
"""Mean of a level → heading and format."""


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    studies = [(path.name, read_counterfactual(path)) for path in paths]
    manifests = [(path.name, read_run(path).manifest or {}) for path in paths]
    is_alone = len(studies) == 1
    values = [_short_words(study.agreement) + ("" if is_alone else f" in {name}") for name, study in studies]
    first = studies[0][1]
    return Content(
        kind="counterfactual",
        label=listed([name for name, _ in studies]),
        headline="Correlation of the cheap ratio log P(s|p)/v̂ with counterfactual memorization: "
        f"{listed(values, most=len(values))}.",
        date=str(manifests[0][1]["written_at"])[:10],
        facts=(
            ("Targets", str(first.agreement.targets)),
            ("Cells (target and level)", str(first.agreement.cells)),
            ("Models with the target, a cell", str(len(first.cells[0]["log_p_with"]))),
        ),
        tables=tuple(_levels(name, study, file="levels" if is_alone else f"levels-{name}") for name, study in studies),
        sentences=tuple(sentence for name, study in studies for sentence in _sentences(name, study)),
        draw=lambda: [
            _drawing(name, study, file="counterfactual" if is_alone else f"counterfactual-{number}")
            for number, (name, study) in enumerate(studies, 1)
        ],
        manifests=tuple((name, json.dumps(manifest, indent=2, ensure_ascii=False)) for name, manifest in manifests),
    )


def _short_words(found: Correlation) -> str:
    interval = found.by_target
    ends = f" (95 % interval {interval.low:.2f} to {interval.high:.2f})" if interval.is_defined else " (no interval)"
    return f"{found.value:.2f}{ends}"


def _words(found: Correlation) -> str:
    """`0.912, 95 % interval 0.880 to 0.940 (targets resampled)`, or why there is none."""
    interval = found.by_target
    if not interval.is_defined:
        return f"{found.value:.3f}, no interval: {interval.reason}"
    return f"{found.value:.3f}, 95 % interval {interval.low:.3f} to {interval.high:.3f} (targets resampled)"


def _levels(name: str, study: CounterfactualResult, *, file: str) -> Cells:
    means = level_means(study.cells)
    columns = {key: words for key, words in LEVEL_COLUMNS.items() if key in means[0]}
    rows = tuple(tuple(f"{row[key]:{format_}}" for key, (_, format_) in columns.items()) for row in means)
    return Cells(file, f"Means of every level, {name}", tuple(head for head, _ in columns.values()), rows)


def _sentences(name: str, study: CounterfactualResult) -> Iterable[str]:
    yield (
        f"{name}: correlation of log ratio and counterfactual score: {_words(study.agreement)}; over level means "
        f"{study.level_correlation:.3f}."
    )
    yield (
        f"{name}: both of these hold log P(s|p) of the models with the target. Without a term in common, log v̂ against "
        f"log P(s|p) without the target: {_words(study.prior_against_baseline)}."
    )


def _drawing(name: str, study: CounterfactualResult, *, file: str) -> Drawing:
    """Counterfactual score against log-ratio, in nats; darker points have more exact copies."""
    from byrote.report.figures.style import HEAT, INK, new_figure  # matplotlib: not for the terminal

    figure, axes = new_figure(5.4, 3.8)
    keys = level_columns(study.cells)
    levels = pl.DataFrame(study.cells).sort(keys).partition_by(keys)
    for number, cells in enumerate(levels):
        x, y = cells["counterfactual"].to_numpy(), cells["log_ratio"].to_numpy()
        colour = HEAT(0.4 + 0.6 * number / max(1, len(levels) - 1))
        label = ", ".join(f"{LEVEL_COLUMNS[key][0]} {cells[key][0]}" for key in keys)
        look: dict[str, Any] = {"edgecolors": INK, "linewidths": 0.9, "zorder": 3, "label": label}
        axes.scatter(x, y, s=16, color=colour, alpha=0.8, linewidths=0)
        axes.scatter([x.mean()], [y.mean()], s=60, color=colour, **look)
    axes.grid(visible=True, axis="both")
    low, high = study.agreement.by_target[:2]
    title = f"r = {study.agreement.value:.2f} (95 % interval {low:.2f} to {high:.2f}, by target)"
    axes.set(xlabel="counterfactual memorization (nats)", ylabel="log P(s|p)/v̂ (nats)", title=title)
    axes.legend(fontsize=7, loc="best")
    caption = f"{name}: every target at every level, later levels in stronger colours; large points are means."
    return Drawing(file, caption, figure)


SECTION = Section(read)
