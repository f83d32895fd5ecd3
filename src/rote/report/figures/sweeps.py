"""Policy sweeps: the rate along one setting, and what every policy gives within n queries."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from rote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from rote.report.sweeps import PROBABILITIES, PolicyRates, SweepSeries, curve_at
from rote.types import Split


def policy_sweep(series: Sequence[SweepSeries], *, setting: str, is_log: bool = False) -> Figure:
    """Rate against a setting of the decoding policy, one line per split; `setting` names the axis."""
    lines = tuple(
        Line(
            one.label,
            tuple(Point.of(place, rate) for place, rate in zip(one.settings, one.rates, strict=True)),
            is_control=one.label == Split.CONTROL,
        )
        for one in series
    )
    values = sorted({value for one in series for value in one.settings})
    ticks = tuple((value, f"{value:g}") for value in values) if is_log else ()
    panel = Panel("", "windows extractable", lines)
    return overlay([panel], Setting(setting, ticks, is_log=is_log))


def policy_queries(found: Sequence[PolicyRates]) -> Figure:
    """Share of windows against the number of queries, a line a policy, a panel for each success probability."""
    panels = [
        Panel(
            f"p = {probability:g}",
            "windows extracted with probability p",
            tuple(
                Line(
                    one.policy,
                    tuple(
                        Point.of(n, rate)
                        for n, rate in zip(
                            curve_at(one.curves, probability).queries,
                            curve_at(one.curves, probability).rates,
                            strict=True,
                        )
                    ),
                )
                for one in found
            ),
        )
        for probability in PROBABILITIES
    ]
    return overlay(panels, Setting("queries, n", is_log=True))
