"""The figure of a counterfactual study: every (target, level) as a point, every level's mean as a large one."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rote.lab.scores import Correlation, CounterfactualCell
from rote.report.figures.style import HEAT, INK, house_style, new_figure


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
