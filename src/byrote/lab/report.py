"""The figure of a counterfactual study: every (target, level) as a point, every level's mean as a large one."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from byrote.lab.run import CounterfactualResult, level_means, read_counterfactual
from byrote.lab.scores import Correlation, CounterfactualCell
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Section
from byrote.report.figures.style import HEAT, INK, house_style, new_figure
from byrote.report.words import listed
from byrote.store.read import read_run

if TYPE_CHECKING:
    from byrote.report.content import Drawing


def counterfactual_figure(cells: Sequence[CounterfactualCell], agreement: Correlation) -> Figure:
    """Counterfactual score against log-ratio, in nats; darker points have more exact copies."""
    figure, axes = new_figure(5.4, 3.8)
    levels = list(dict.fromkeys((cell.copies, cell.near_duplicates) for cell in cells))
    with house_style():
        for number, level in enumerate(levels):
            here = [cell for cell in cells if (cell.copies, cell.near_duplicates) == level]
            x, y = [cell.counterfactual for cell in here], [cell.log_ratio for cell in here]
            colour = HEAT(0.4 + 0.6 * number / max(1, len(levels) - 1))
            axes.scatter(x, y, s=16, color=colour, alpha=0.8, linewidths=0)
            axes.scatter(
                [np.mean(x)], [np.mean(y)], s=60, color=colour, edgecolors=INK, linewidths=0.9, zorder=3,
                label=f"{level[0]} copies, {level[1]} near-duplicates",
            )  # fmt: skip
        axes.grid(visible=True, axis="both")
        axes.set_xlabel("counterfactual memorization (nats)")
        axes.set_ylabel("log P(s|p)/v̂ (nats)")
        low, high = agreement.by_target[:2]
        axes.set_title(f"r = {agreement.value:.2f} (95 % interval {low:.2f} to {high:.2f}, by target)")
        axes.legend(fontsize=7, loc="best")
    return figure


LEVEL_HEADS = ("copies", "near-duplicates", "counterfactual", "log ratio", "log P with", "without")
LEVEL_NAMES = ("copies", "near_duplicates", "counterfactual", "log_ratio", "log_p_with", "log_p_without")


def correlation_words(found: Correlation) -> str:
    """`0.912, 95 % interval 0.88 to 0.94 (targets resampled)`, or why there is none."""
    interval = found.by_target
    if not interval.is_defined:
        return f"{found.value:.3f}, no interval: {interval.reason}"
    return f"{found.value:.3f}, 95 % interval {interval.low:.3f} to {interval.high:.3f} (targets resampled)"


def _value(found: Correlation) -> str:
    interval = found.by_target
    ends = f" (95 % interval {interval.low:.2f} to {interval.high:.2f})" if interval.is_defined else " (no interval)"
    return f"{found.value:.2f}{ends}"


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    studies = [(path.name, read_counterfactual(path)) for path in paths]
    manifests = [read_run(path).manifest or {} for path in paths]
    values = [_value(study.agreement) + (f" in {name}" if len(studies) > 1 else "") for name, study in studies]
    return Content(
        kind="counterfactual",
        label=listed([name for name, _ in studies]),
        headline="Correlation of the cheap ratio log P(s|p)/v̂ with counterfactual memorization: "
        f"{listed(values, most=len(values))}.",
        date=str(manifests[0]["written_at"])[:10],
        facts=_facts(studies[0][1]),
        tables=tuple(_levels(name, study, is_alone=len(studies) == 1) for name, study in studies),
        sentences=tuple(sentence for name, study in studies for sentence in _sentences(name, study)),
        draw=lambda: _drawings(studies),
        manifests=tuple(
            (path.name, json.dumps(manifest, indent=2, ensure_ascii=False))
            for path, manifest in zip(paths, manifests, strict=True)
        ),
    )


def _facts(study: CounterfactualResult) -> tuple[tuple[str, str], ...]:
    return (
        ("Targets", str(study.agreement.targets)),
        ("Cells (target and level)", str(study.agreement.cells)),
        ("Models with the copies, a cell", str(len(study.cells[0].log_p_with))),
    )


def _levels(name: str, study: CounterfactualResult, *, is_alone: bool) -> Cells:
    rows = tuple(
        tuple(f"{row[key]:.0f}" if key in LEVEL_NAMES[:2] else f"{row[key]:.2f}" for key in LEVEL_NAMES)
        for row in level_means(study.cells)
    )
    return Cells("levels" if is_alone else f"levels-{name}", f"Means of every level, {name}", LEVEL_HEADS, rows)


def _sentences(name: str, study: CounterfactualResult) -> Iterable[str]:
    yield (
        f"{name}: correlation of log ratio and counterfactual score: {correlation_words(study.agreement)}; over level "
        f"means {study.level_correlation:.3f}."
    )
    yield (
        f"{name}: both of these hold log P(s|p) of the models with the copies. Without a term in common, log v̂ against "
        f"log P(s|p) without the copies: {correlation_words(study.prior_against_baseline)}."
    )


def _drawings(studies: Sequence[tuple[str, CounterfactualResult]]) -> Iterable["Drawing"]:
    from byrote.report.content import Drawing

    for number, (name, study) in enumerate(studies, 1):
        caption = (
            f"{name}: every target at every level, in stronger colours with more exact copies; large points are means."
        )
        figure = counterfactual_figure(study.cells, study.agreement)
        yield Drawing("counterfactual" if len(studies) == 1 else f"counterfactual-{number}", caption, figure)


SECTION = Section(read)
