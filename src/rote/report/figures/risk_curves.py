"""Risk by number of queries: the chance that something leaks, and how many characters come out."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from rote.report.figures.overlays import shortened
from rote.report.figures.style import SERIES, SOFT, WIDE, house_style, log_axis, percent_axis
from rote.report.risk import Risk

MOST_DOCUMENTS = 6


def risk_by_queries(documents: Sequence[Sequence[Risk]], *, title: str = "") -> Figure:
    """Left the chance of a leak, right the share of characters: full lines are certified lower ends, dashed ones upper
    limits at 95 % confidence."""
    with house_style():
        figure = Figure(figsize=(WIDE, 3.9), layout="constrained")
        leaks, characters = figure.subplots(1, 2)
        for index, risks in enumerate(documents[:MOST_DOCUMENTS]):
            colour, label = SERIES[index % len(SERIES)], risks[0].document.name
            queries = [risk.queries for risk in risks]
            for axes, low, limit in (
                (leaks, [risk.leak_low for risk in risks], [risk.leak_limit for risk in risks]),
                (characters, [risk.share_low for risk in risks], [risk.share_limit for risk in risks]),
            ):
                axes.plot(queries, low, color=colour, label=shortened(label, WIDE / 3))
                axes.plot(queries, limit, color=colour, linestyle="--", linewidth=1)
        for axes, name in ((leaks, "Chance that some passage leaks"), (characters, "Characters recovered, on average")):
            log_axis(axes, "x")
            percent_axis(axes)
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel("queries to random windows, n")
            axes.set_title(name)
        leaks.plot([], [], color=SOFT, label="at least, certified")
        leaks.plot([], [], color=SOFT, linestyle="--", linewidth=1, label="at most, 95 % confidence")
        figure.legend(*leaks.get_legend_handles_labels(), loc="outside lower left", ncols=3)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    return figure
