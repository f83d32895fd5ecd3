"""Policy sweeps of a run: what every policy makes extractable, at τ and within n queries, all from one pass."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from byrote.report.content import Cells
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.rates import places_of, rate_fields, split_rows, splits_of
from byrote.report.view import RunView
from byrote.report.words import interval_words, percent
from byrote.stats.clusters import choose_units, rate_over_units
from byrote.stats.curves import RateCurve, RateCurves, query_grid, rate_curves
from byrote.stats.intervals import Rate
from byrote.stats.population import Floats
from byrote.store.columns import sweep_column
from byrote.types import Split

SINGLE = re.compile(r"(?P<name>[kpt])=(?P<value>[0-9.eE+-]+)")
SETTINGS = {"k": "top-k", "p": "top-p (nucleus)", "t": "temperature"}
PROBABILITIES = (0.1, 0.5, 0.9)
SHOWN_PROBABILITY = 0.5
QUERIES = (1.0, 100.0, 10_000.0)
LARGEST_QUERIES = 1e6


class SweepSeries(NamedTuple):
    """Rates along one policy setting (k, q or β), everything else fixed."""

    label: str
    settings: tuple[float, ...]
    rates: tuple[Rate, ...]


class PolicyRates(NamedTuple):
    """One policy over one split: the rate at τ and the curves over n."""

    policy: str
    split: Split
    at_threshold: Rate
    curves: RateCurves


def written(config: Mapping[str, Any]) -> str:
    """The run's own policy, as a sweep would write it."""
    names = {"temperature": "t", "top_k": "k", "top_p": "p"}
    parts = [f"{short}={config[name]:g}" for name, short in names.items() if config.get(name) is not None]
    return "+".join(part for part in parts if part != "t=1") or "t=1"


def policies_of(view: RunView) -> dict[str, Floats]:
    """policy → verbatim log-probability of every window, the run's own policy first; empty without a sweep."""
    swept = {
        str(policy): view.results[sweep_column(str(policy))].to_numpy()
        for policy in view.config.get("sweep") or ()
        if sweep_column(str(policy)) in view.results.columns
    }
    return own_policy(view) | swept if swept else {}


def own_policy(view: RunView) -> dict[str, Floats]:
    return {f"{written(view.config)} (searched)": view.population.log_verbatim()}


def policy_rates(
    view: RunView, queries: Sequence[float] | None = None, policies: Mapping[str, Floats] | None = None
) -> list[PolicyRates]:
    """Every policy of the sweep, or those given, targets before controls, each with intervals."""
    found = []
    for split in splits_of(view.population):
        rows = split_rows(view.population, split)
        places = places_of(view.population.select(rows))
        for policy, log_p in (policies_of(view) if policies is None else policies).items():
            ranks = np.unique(log_p[rows], return_inverse=True)[1].reshape(-1).astype(np.float64)
            at_threshold = rate_over_units(log_p[rows] >= np.log(view.threshold), choose_units(places, ranks))
            grid = query_grid(LARGEST_QUERIES) if queries is None else queries
            curves = rate_curves(log_p[rows], places, queries=grid, probabilities=PROBABILITIES)
            found.append(PolicyRates(policy, split, at_threshold, curves))
    return found


def sweep_series(view: RunView) -> dict[str, list[SweepSeries]]:
    """setting → rates of targets and controls along it; settings that the sweep varies alone at least twice."""
    groups: dict[str, dict[Split, list[tuple[float, Rate]]]] = {}
    for one in policy_rates(view, queries=(1.0,)):
        match = SINGLE.fullmatch(one.policy)
        if match is not None:
            own = groups.setdefault(SETTINGS[match["name"]], {})
            own.setdefault(one.split, []).append((float(match["value"]), one.at_threshold))
    series: dict[str, list[SweepSeries]] = {}
    for setting, by_split in groups.items():
        if all(len(points) > 1 for points in by_split.values()):
            for split, points in by_split.items():
                values, rates = zip(*sorted(points, key=lambda point: point[0]), strict=True)
                series.setdefault(setting, []).append(SweepSeries(split.value, values, rates))
    return series


def curve_at(curves: RateCurves, probability: float) -> RateCurve:
    return next(curve for curve in curves.curves if curve.p == probability)


def sweep_cells(view: RunView) -> list[Cells]:
    """Every policy with its rate at τ and its (n, p) rates; empty without a sweep."""
    found = policy_rates(view, queries=QUERIES)
    heads = ("policy", "side", f"p ≥ {view.threshold:g}", "95 % interval", *(f"n = {n:,.0f}" for n in QUERIES))
    rows = [
        (
            one.policy,
            one.split.value,
            percent(one.at_threshold.value),
            interval_words(one.at_threshold.interval),
            *(percent(rate.value) for rate in curve_at(one.curves, SHOWN_PROBABILITY).rates),
        )
        for one in found
    ]
    note = (
        f"Word for word, from one pass. n: share that comes out within n queries with probability "
        f"{SHOWN_PROBABILITY:g}; the report's tables/policies.csv has more, with intervals."
    )
    return [Cells("policy-sweep", "Every policy of the sweep", heads, tuple(rows), note)] if rows else []


def sweep_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, side, policy and criterion (τ, or n and p); none without a sweep."""
    rows: list[dict[str, Any]] = []
    for view in views:
        for one in policy_rates(view):
            common = {"run": view.label, "split": one.split.value, "policy": one.policy}
            at_threshold = {"threshold": view.threshold, "n": None, "p": None}
            rows.append({**common, **at_threshold, **rate_fields(one.at_threshold)})
            for curve in one.curves.curves:
                for n, rate in zip(curve.queries, curve.rates, strict=True):
                    rows.append({**common, "threshold": None, "n": n, "p": curve.p, **rate_fields(rate)})
    return rows


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
    panels = []
    for probability in PROBABILITIES:
        lines = []
        for one in found:
            curve = curve_at(one.curves, probability)
            points = (Point.of(n, rate) for n, rate in zip(curve.queries, curve.rates, strict=True))
            lines.append(Line(one.policy, tuple(points)))
        panels.append(Panel(f"p = {probability:g}", "windows extracted with probability p", tuple(lines)))
    return overlay(panels, Setting("queries, n", is_log=True))
