"""Risk by number of queries: the chance that something leaks, and how many characters come out."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from rote.report.figures.style import SERIES, house_style, log_axis, percent_axis
from rote.report.risk import Risk

MOST_DOCUMENTS = 6


def risk_by_queries(documents: Sequence[Sequence[Risk]], *, title: str = "") -> Figure:
    """Left the chance of a leak, right the share of characters: lines are lower ends, dashed ones limits at 95 %
    confidence, dotted ones certified upper ends."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.4), layout="constrained")
        leaks, characters = figure.subplots(1, 2)
        for index, risks in enumerate(documents[:MOST_DOCUMENTS]):
            colour, label = SERIES[index % len(SERIES)], risks[0].document.name
            queries = [risk.queries for risk in risks]
            for axes, ends in (
                (leaks, [(risk.leak_low, risk.leak_limit, risk.leak_high) for risk in risks]),
                (characters, [(risk.share_low, risk.share_limit, risk.share_high) for risk in risks]),
            ):
                low, limit, high = zip(*ends, strict=True)
                axes.plot(queries, low, color=colour, label=label)
                axes.fill_between(queries, low, limit, color=colour, alpha=0.12, linewidth=0)
                axes.plot(queries, limit, color=colour, linestyle="--", linewidth=0.8)
                axes.plot(queries, high, color=colour, linestyle=":", linewidth=0.8)
        for axes, name in ((leaks, "chance that some passage leaks"), (characters, "characters recovered, on average")):
            log_axis(axes, "x")
            percent_axis(axes)
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel("queries to random windows")
            axes.set_title(name, fontsize=9)
        figure.legend(*leaks.get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False, fontsize=8)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    return figure
