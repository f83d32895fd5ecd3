"""(n, p) of a run: the share of windows that come out within n queries with probability p, for any n and p.

Near-verbatim curves rest on lower bounds. Where a search stopped at τ, or was not run, nothing but p_z is in the bound;
which bounds no mass below τ, so beyond the queries that τ needs the curve may be far below the truth.

Also policy sweeps: what every policy makes extractable, at τ and within n queries, all from one pass.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from byrote.report.analysis.rates import Criterion, hits_of, parts_of, places_of, rate_fields, split_rows, units_by_rank
from byrote.report.content import Cells, Drawing
from byrote.report.figures.overlays import Line, Panel, Point, Setting, overlay
from byrote.report.view import RunView
from byrote.report.words import integer, interval_words, percent, probability, share_words
from byrote.stats.clusters import rate_over_units
from byrote.stats.curves import PROBABILITIES, MassKind, RateCurve, RateCurves, queries_needed, query_grid, rate_curves
from byrote.stats.intervals import Rate
from byrote.stats.population import Floats, Population
from byrote.store.columns import sweep_column
from byrote.types import Split


def curves_of(
    population: Population, *, queries: Sequence[float], probabilities: Sequence[float] = PROBABILITIES
) -> list[RateCurves]:
    """Of the exact target, and of the near-verbatim lower bound, where they were measured."""
    places, masses = places_of(population), []
    if population.p_verbatim is not None or population.mass_lower is not None:
        masses.append((population.log_verbatim(), MassKind.EXACT))
    if population.mass_lower is not None:
        masses.append((population.log_mass(population.edit_budget), MassKind.LOWER_BOUND))
    return [
        rate_curves(logs, places, queries=queries, probabilities=probabilities, mass_kind=kind) for logs, kind in masses
    ]


def _line(label: str, curve: RateCurve, floor: float | None, *, is_control: bool = False) -> Line:
    """Dashed from where masses below `floor` count, for which not every window was searched. With intervals at the
    probability that all figures show."""
    make = Point.of if curve.p == SHOWN_PROBABILITY else lambda n, rate: Point(n, rate.value)
    points = tuple(make(n, rate) for n, rate in zip(curve.queries, curve.rates, strict=True))
    return Line(label, points, is_control, most_queries(floor, curve.p))


def query_lines(label: str, part: Population, threshold: float, *, is_control: bool = False) -> dict[MassKind, Line]:
    """(n, p) of some windows at the probability that figures of several show, for every mass measured."""
    grid = query_grid(LARGEST_QUERIES, per_decade=20)
    every = curves_of(part, queries=grid, probabilities=[SHOWN_PROBABILITY]) if len(part) else []
    return {
        one.mass_kind: _line(
            label, one.curves[0], searched_down_to(part, threshold, one.mass_kind), is_control=is_control
        )
        for one in every
    }


def query_panel(
    curves: RateCurves, *, control: RateCurves | None, floor: float | None, greedy_rate: float | None
) -> Panel:
    """A line for every probability, the control at the middle one; and, at any n, the share that some n brings out and
    the greedy rate."""
    lines = [_line(f"p = {curve.p:g}", curve, floor) for curve in curves.curves]
    if control is not None:
        middle = control.curves[min(1, len(control.curves) - 1)]
        lines.append(_line(f"control, p = {middle.p:g}", middle, floor, is_control=True))
    levels = {"any n": curves.worst_case.value, "greedy, one query": greedy_rate}
    grid = curves.curves[0].queries
    lines += [Line(label, tuple(Point(n, value) for n in grid)) for label, value in levels.items() if value is not None]
    return Panel(TITLES[curves.mass_kind], "windows extracted with probability p", tuple(lines))


def query_drawing(view: RunView, targets: Population) -> Drawing:
    """(n, p) of one run, a panel for each mass."""
    grid = query_grid(LARGEST_QUERIES, per_decade=20)
    controls = view.population.select(split_rows(view.population, Split.CONTROL))
    has_control = len(controls) and not view.population.is_control.all()
    control_of = {one.mass_kind: one for one in curves_of(controls, queries=grid)} if has_control else {}
    greedy = hits_of(targets, Criterion.GREEDY, edits=0, threshold=1.0)
    panels = [
        query_panel(
            one,
            control=control_of.get(one.mass_kind),
            floor=searched_down_to(targets, view.threshold, one.mass_kind),
            greedy_rate=None if greedy is None else float(greedy.mean()),
        )
        for one in curves_of(targets, queries=grid)
    ]
    caption = "Share of target windows that come out at least once with probability p within n queries, "
    caption += f"with 95 % intervals at p = {SHOWN_PROBABILITY:g}."
    if searched_down_to(targets, view.threshold) is not None:
        caption += f" Dashed: {cut_short_words(targets, view.threshold)}."
    return Drawing("queries", caption, overlay(panels, Setting("queries, n", is_log=True)), "queries", is_wide=True)


def lines_drawing(name: str, caption: str, lines: Sequence[Mapping[MassKind, Line]]) -> Drawing:
    """The lines of several, a panel for each mass; controls last, so that a line has the same colour without them."""
    kinds = dict.fromkeys(kind for own in lines for kind in own)
    panels = [
        Panel(
            f"{TITLES[kind]}, p = {SHOWN_PROBABILITY:g}",
            "windows extracted with probability p",
            tuple(sorted((own[kind] for own in lines if kind in own), key=lambda line: line.is_control)),
        )
        for kind in kinds
    ]
    if any(np.isfinite(line.solid_to) for own in lines for line in own.values()):
        caption += " Dashed: masses below τ count there, for which not every window was searched."
    return Drawing(name, caption, overlay(panels, Setting("queries, n", is_log=True)), "queries", is_wide=True)


TITLES = {MassKind.EXACT: "Word for word", MassKind.LOWER_BOUND: "Nearly, at least"}


def searched_down_to(
    population: Population, threshold: float, mass_kind: MassKind = MassKind.LOWER_BOUND
) -> float | None:
    """The mass below which some windows' near-verbatim bounds rest on p_z alone; None when all were searched out, and
    for exact masses."""
    is_cut_short = population.is_cut_short is not None and population.is_cut_short.any()
    return threshold if is_cut_short and mass_kind is not MassKind.EXACT else None


def cut_short_words(population: Population, threshold: float) -> str:
    """What a reader must know of a near-verbatim curve beyond the queries that τ needs."""
    assert population.is_cut_short is not None
    return (
        f"{integer(int(population.is_cut_short.sum()))} of {integer(len(population))} windows were not searched for "
        f"masses below {probability(threshold)}: there they count by their exact probability alone, so the true share "
        "may be higher"
    )


def most_queries(floor: float | None, p: float) -> float:
    """Queries up to which only masses of `floor` and more count."""
    return np.inf if floor is None else float(queries_needed(floor, p, whole=False))


def query_numbers(view: RunView, queries: Sequence[float], probabilities: Sequence[float]) -> list[dict[str, object]]:
    """What `query_cells` shows, as numbers: one entry a split, mass, probability and number of queries.

    `searched_for` is false where smaller masses count than windows were searched for, the tables' star.
    """
    return [
        {
            "split": split.value,
            "mass": "verbatim" if curves.mass_kind is MassKind.EXACT else "near",
            "probability": curve.p,
            "queries": n,
            "rate": rate.value,
            "interval": [rate.interval.low, rate.interval.high],
            "searched_for": n <= most_queries(searched_down_to(part, view.threshold, curves.mass_kind), curve.p),
        }
        for split, part in parts_of(view.population).items()
        for curves in curves_of(part, queries=queries, probabilities=probabilities)
        for curve in curves.curves
        for n, rate in zip(curve.queries, curve.rates, strict=True)
    ]


def query_cells(view: RunView, queries: Sequence[float], probabilities: Sequence[float]) -> list[Cells]:
    """One table for targets and one for controls: verbatim, and near-verbatim where it was measured."""
    tables = []
    for split, part in parts_of(view.population).items():
        labels = {MassKind.EXACT: "verbatim", MassKind.LOWER_BOUND: f"within {part.edit_budget} edits, at least"}
        rows = []
        for curves in curves_of(part, queries=queries, probabilities=probabilities):
            floor = searched_down_to(part, view.threshold, curves.mass_kind)
            for curve in curves.curves:
                marks = ["*" if n > most_queries(floor, curve.p) else "" for n in curve.queries]
                shares = [share_words(rate) + mark for rate, mark in zip(curve.rates, marks, strict=True)]
                limit = percent(curves.worst_case.value) + ("" if floor is None else "*")
                rows.append((labels[curves.mass_kind], f"{curve.p:g}", *shares, limit))
        title = f"{split.value}: share of windows extractable within n queries with probability p"
        heads = ("", "p", *(f"n = {count:g}" for count in queries), "any n")
        is_marked = searched_down_to(part, view.threshold) is not None
        note = f"* {cut_short_words(part, view.threshold)}." if is_marked else ""
        tables.append(Cells(f"queries-{split.value}", title, heads, tuple(rows), note))
    return tables


SINGLE = re.compile(r"(?P<name>[kpt])=(?P<value>[0-9.eE+-]+)")
SETTINGS = {"k": "top-k", "p": "top-p (nucleus)", "t": "temperature"}
SWEPT_PROBABILITIES = (0.1, 0.5, 0.9)
SHOWN_PROBABILITY = 0.5
QUERIES = (1.0, 100.0, 10_000.0)
LARGEST_QUERIES = 1e6


class PolicyRates(NamedTuple):
    """One policy over one split: the rate at τ and the curves over n."""

    policy: str
    split: Split
    at_threshold: Rate
    curves: RateCurves


def policies_of(view: RunView) -> dict[str, Floats]:
    """policy → verbatim log-probability of every window, the run's own policy first; empty without a sweep."""
    swept = {
        str(policy): view.results[sweep_column(str(policy))].to_numpy()
        for policy in view.config.get("sweep") or ()
        if sweep_column(str(policy)) in view.results.columns
    }
    return own_policy(view) | swept if swept else {}


def own_policy(view: RunView) -> dict[str, Floats]:
    """The run's own policy, as a sweep would write it."""
    names = {"temperature": "t", "top_k": "k", "top_p": "p"}
    parts = [f"{short}={view.config[name]:g}" for name, short in names.items() if view.config.get(name) is not None]
    policy = "+".join(part for part in parts if part != "t=1") or "t=1"
    return {f"{policy} (searched)": view.population.log_verbatim()}


def policy_rates(
    view: RunView, queries: Sequence[float] | None = None, policies: Mapping[str, Floats] | None = None
) -> list[PolicyRates]:
    """Every policy of the sweep, or those given, targets before controls, each with intervals."""
    grid = query_grid(LARGEST_QUERIES) if queries is None else queries
    found = []
    for split, part in parts_of(view.population).items():
        rows, places = split_rows(view.population, split), places_of(part)
        for policy, log_p in (policies_of(view) if policies is None else policies).items():
            own = log_p[rows]
            at_threshold = rate_over_units(own >= np.log(view.threshold), units_by_rank(places, own))
            curves = rate_curves(own, places, queries=grid, probabilities=SWEPT_PROBABILITIES)
            found.append(PolicyRates(policy, split, at_threshold, curves))
    return found


def sweep_series(view: RunView) -> dict[str, list[Line]]:
    """setting → rates of targets and controls along it; settings that the sweep varies alone at least twice."""
    groups: dict[str, dict[Split, list[Point]]] = {}
    for one in policy_rates(view, queries=(1.0,)):
        if (match := SINGLE.fullmatch(one.policy)) is not None:
            own = groups.setdefault(SETTINGS[match["name"]], {})
            own.setdefault(one.split, []).append(Point.of(float(match["value"]), one.at_threshold))
    return {
        setting: [
            Line(split.value, tuple(sorted(own)), is_control=split is Split.CONTROL) for split, own in by_split.items()
        ]
        for setting, by_split in groups.items()
        if all(len(points) > 1 for points in by_split.values())
    }


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


def policy_sweep(lines: Sequence[Line], *, setting: str, is_log: bool = False) -> Figure:
    """Rate against a setting of the decoding policy, one line per split; `setting` names the axis."""
    values = sorted({point.place for line in lines for point in line.points})
    ticks = tuple((value, f"{value:g}") for value in values) if is_log else ()
    return overlay([Panel("", "windows extractable", tuple(lines))], Setting(setting, ticks, is_log=is_log))


def policy_queries(found: Sequence[PolicyRates]) -> Figure:
    """Share of windows against the number of queries, a line a policy, a panel for each success probability."""
    panels = []
    for chance in SWEPT_PROBABILITIES:
        lines = []
        for one in found:
            curve = curve_at(one.curves, chance)
            points = (Point.of(n, rate) for n, rate in zip(curve.queries, curve.rates, strict=True))
            lines.append(Line(one.policy, tuple(points)))
        panels.append(Panel(f"p = {chance:g}", "windows extracted with probability p", tuple(lines)))
    return overlay(panels, Setting("queries, n", is_log=True))
