"""Rates by decoding setting: what every policy of a family makes extractable, verbatim and near, from one search.

Each setting keeps a part of what the search keeps. Bounds under all of them are certified. The search itself follows
its own policy: where it stopped once that one was decided, or was not run, the others have p_z as their lower bound and
a wide upper one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from byrote.report.analysis.queries import own_policy
from byrote.report.analysis.rates import places_of, rate_fields, split_rows, units_by_rank
from byrote.report.content import Cells, Drawing
from byrote.report.figures import style
from byrote.report.view import RunView
from byrote.report.words import integer, interval_words, percent
from byrote.stats.clusters import rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Floats, by_edits
from byrote.store.columns import policy_columns
from byrote.types import Split


class SettingRates(NamedTuple):
    """One decoding setting over one split: shares of windows at τ and the whole edit budget."""

    setting: str
    split: Split
    verbatim: Rate
    near: Rate
    at_most: Rate
    """Windows whose upper bound reaches τ."""
    mean: float
    """Mean lower bound: at least this share of queries come near."""


def bounds_of(view: RunView) -> dict[str, tuple[Floats, Floats]]:
    """setting → lower and upper bounds by ε of every window, the searched policy first; empty without further ones."""
    found: dict[str, tuple[Floats, Floats]] = {}
    for text in map(str, view.config.get("policies") or ()):
        lower, upper = (by_edits(view.results, name) for name in policy_columns(text))
        if lower is not None and upper is not None:
            found[text] = lower, upper
    own = view.population.mass_lower, view.population.mass_upper
    if not found or own[0] is None or own[1] is None:
        return {}
    (name,) = own_policy(view)
    return {name: (own[0], own[1])} | found


def setting_rates(view: RunView) -> list[SettingRates]:
    """Every setting of targets, then of controls."""
    bounds, rates = bounds_of(view), []
    for split in Split:
        rows = split_rows(view.population, split)
        if not rows.any():
            continue
        places = places_of(view.population.select(rows))
        for setting, (lower, upper) in bounds.items():
            units = units_by_rank(places, lower[rows, -1])
            masses = lower[rows, 0], lower[rows, -1], upper[rows, -1]
            verbatim, near, at_most = (rate_over_units(mass >= view.threshold, units) for mass in masses)
            rates.append(SettingRates(setting, split, verbatim, near, at_most, float(masses[1].mean())))
    return rates


def worst_words(rates: Sequence[SettingRates], edits: int) -> str:
    """The setting that certifies most windows of targets, or of controls where the run has nothing else; among equals
    that with the largest mean."""
    worst = max((one for one in rates if one.split is rates[0].split), key=lambda one: (one.near.value, one.mean))
    if worst.near.value == 0:
        return "Under none of the settings a window is certified."
    return (
        f"Worst setting: {worst.setting}, with {percent(worst.near.value)} of {worst.split} windows certified within "
        f"{edits} edits; at least {percent(worst.mean)} of queries to them all come near."
    )


def policy_cells(view: RunView) -> list[Cells]:
    """A row a setting and side; empty without further policies."""
    rates, edits = setting_rates(view), view.population.edit_budget
    if not rates:
        return []
    has_both = len({one.split for one in rates}) > 1
    rows = tuple(
        (
            one.setting + (f", {one.split}" if has_both else ""),
            percent(one.verbatim.value),
            percent(one.near.value),
            interval_words(one.near.interval),
            percent(one.at_most.value),
            percent(one.mean),
        )
        for one in rates
    )
    heads = ("setting", "verbatim", f"ε ≤ {edits}", "95 % interval", "at most", "queries")
    return [Cells("settings", "Rate by decoding setting", heads, rows, f"{worst_words(rates, edits)} {_limits(view)}")]


def _limits(view: RunView) -> str:
    """Where the bounds of the further settings are wide, and what makes them narrow."""
    is_cut_short, start = view.population.is_cut_short, "All settings are bounded by one search."
    queries = "Queries: of those to all windows, at least this share comes near."
    if is_cut_short is None or not is_cut_short.any():
        return f"{start} {queries}"
    return (
        f"{start} {queries} {integer(int(is_cut_short.sum()))} windows were screened, or their search stopped once its "
        "own policy was decided: under the other settings they count by their exact probability. --set stop_rule=off "
        "and --screen off search them to the end."
    )


def policy_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, side, setting and criterion; none without further policies."""
    return [
        {
            "run": view.label,
            "split": one.split.value,
            "setting": one.setting,
            "criterion": criterion,
            "edits": edits,
            "threshold": view.threshold,
            "mean_lower": one.mean,
            **rate_fields(rate),
        }
        for view in views
        for one in setting_rates(view)
        for criterion, edits, rate in (
            ("verbatim", 0, one.verbatim),
            ("near", view.population.edit_budget, one.near),
            ("not_ruled_out", view.population.edit_budget, one.at_most),
        )
    ]


def policy_drawings(view: RunView) -> list[Drawing]:
    """A line a setting, most extractable first: exact rate, certified near rate, and what is not ruled out."""
    rates = setting_rates(view)
    if not rates:
        return []
    edits, split = view.population.edit_budget, rates[0].split
    shown = sorted((one for one in rates if one.split is split), key=lambda one: (one.near.value, one.mean))
    figure, axes = style.new_figure(height=1.3 + 0.34 * len(shown))
    places = range(len(shown))
    near = [one.near.value for one in shown]
    axes.barh(places, [one.at_most.value for one in shown], 0.5, color=style.FAINT, label="not ruled out")
    lows, highs = [one.near.interval.low for one in shown], [one.near.interval.high for one in shown]
    axes.hlines(places, lows, highs, color=style.BLUE, alpha=0.5, linewidth=2)
    look: dict[str, Any] = {"linestyle": "", "clip_on": False, "zorder": 3}
    axes.plot(near, places, marker="o", color=style.BLUE, label=f"within {edits} edits, certified", **look)
    exact = [one.verbatim.value for one in shown]
    axes.plot(exact, places, marker="D", markerfacecolor="white", color=style.VERMILLION, label="verbatim", **look)
    axes.set_yticks(places, [one.setting for one in shown])
    axes.set(xlabel=f"{split} windows with mass ≥ {view.threshold:g}", xlim=(0, None))
    style.percent_axis(axes, "x")
    style.value_grid(axes)
    style.legend_above(axes, columns=3)
    caption = f"Rate by decoding setting, verbatim and near, with 95 % intervals. {worst_words(rates, edits)}"
    return [Drawing("settings", caption, figure, "near")]
