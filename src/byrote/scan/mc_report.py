"""How samples of windows are shown: the mass of each with its interval, beside what a scan certified, and how it
settled with the number of samples.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from byrote.errors import RunError
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Section
from byrote.report.view import model_name
from byrote.report.words import integer, listed, plural, policy_words, probability
from byrote.scan.mc import share_interval
from byrote.store.read import read_run
from byrote.types import IntervalName

HEADS = ("window", "samples", "hits", "mass", "error", "95 % interval", "evaluations")
NOT_CERTIFIED = "Masses are shares of samples, not certified; intervals hold at 95 % for each window by itself."
FIGURES = 6
MEETING = 1e-6

Rows = Sequence[Mapping[str, Any]]


class McView(NamedTuple):
    label: str
    name: str
    manifest: Mapping[str, Any]
    rows: Rows


def load(path: Path) -> McView:
    run = read_run(path)
    if run.manifest is None:
        raise RunError(f"{path} is not finished; run the same command again.")
    return McView(model_name(run.manifest) or path.name, path.name, run.manifest, run.results.to_dicts())


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    views = [load(path) for path in paths]
    if len({view.label for view in views}) < len(views):
        views = [view._replace(label=f"{view.label} ({view.name})") for view in views]
    names = ["masses"] if len(views) == 1 else [f"masses-{number}" for number in range(1, len(views) + 1)]
    tables = [masses_table(view.rows, name=name, title=view.label) for view, name in zip(views, names, strict=True)]
    rows = [row for view in views for row in view.rows]
    manifests = tuple((view.name, json.dumps(view.manifest, indent=2, ensure_ascii=False)) for view in views)
    return Content(
        kind="mc",
        label=listed([view.label for view in views]),
        headline=headline(rows),
        date=str(views[0].manifest["written_at"])[:10],
        facts=(
            ("Model", listed([view.label for view in views])),
            ("Answers sampled with", policy_words(views[0].manifest["config"])),
            ("Near means", f"at most {plural(views[0].manifest['config']['edit_budget'], 'token edit')}"),
        ),
        tables=tuple(tables),
        sentences=(NOT_CERTIFIED, *agreement(rows)),
        draw=lambda: _drawings(rows, views[0].manifest["config"]["interval"]),
        manifests=manifests,
    )


def headline(rows: Rows) -> str:
    samples = f"{integer(sum(row['samples'] for row in rows))} plain samples of {plural(len(rows), 'window')}"
    known = [row for row in rows if row["certified_upper"] is not None]
    if not known:
        return f"{samples}."
    return f"{samples}; in {integer(agreeing(known))} of {integer(len(known))} they agree with the certified bounds."


def agreeing(rows: Rows) -> int:
    """Windows whose interval shares a value with their certified bounds."""
    return sum(row["mass_low"] <= row["certified_upper"] and row["certified_lower"] <= row["mass_high"] for row in rows)


def masses_table(rows: Rows, *, name: str = "masses", title: str = "Monte Carlo: sampled, not certified") -> Cells:
    has_bounds = any(row["certified_upper"] is not None for row in rows)
    cells = []
    for row in rows:
        error, lower, upper = row["standard_error"], row["certified_lower"], row["certified_upper"]
        bounds = "–" if upper is None else f"{probability(lower)} to {probability(upper)}"
        cells.append(
            (
                row["window_id"],
                integer(row["samples"]),
                integer(row["hits"]),
                probability(row["mass"]),
                "–" if error is None or math.isnan(error) else probability(error),
                f"{probability(row['mass_low'])} to {probability(row['mass_high'])}",
                integer(row["token_evals"]),
                *([bounds] if has_bounds else []),
            )
        )
    return Cells(name, title, HEADS + (("certified",) if has_bounds else ()), tuple(cells))


def curve_table(rows: Rows) -> Cells:
    """The estimate after 10, 20, 50 … samples."""
    points = [
        (row["window_id"], integer(int(samples)), integer(int(hits)), probability(hits / samples))
        for row in rows
        for samples, hits in zip(row["curve_samples"], row["curve_hits"], strict=True)
    ]
    return Cells("curve", "By number of samples", HEADS[:4], tuple(points))


def agreement(rows: Rows) -> tuple[str, ...]:
    """Whether intervals and certified bounds share a value, where a scan has bounds."""
    known = [row for row in rows if row["certified_upper"] is not None]
    if not known:
        return ()
    shared = (
        f"In {integer(agreeing(known))} of {plural(len(known), 'window')} interval and certified bounds share a value."
    )
    return (shared, *_exact_test(known))


def _exact_test(rows: Rows) -> tuple[str, ...]:
    """Empirical against computed probability, where the latter is known exactly."""
    from byrote.stats.sampling_check import check_sampling

    # Where bounds meet, up to rounding, hits are binomial with that very probability.
    rows = [row for row in rows if row["certified_upper"] * (1 - MEETING) <= row["certified_lower"]]
    if not rows:
        return ()
    columns = ([row[name] for row in rows] for name in ("certified_upper", "hits", "samples"))
    found = check_sampling(*columns)
    if math.isnan(found.overall_p_value):
        return (f"In {plural(len(rows), 'window')} the mass is known exactly, and {found.reason}.",)
    verdict = "agree with it" if found.agrees() else "do not agree with it"
    return (
        f"In {plural(len(rows), 'window')} the mass is known exactly; the samples {verdict} (exact binomial tests, "
        f"overall p = {found.overall_p_value:.2g}).",
    )


def _drawings(rows: Rows, interval: IntervalName) -> Iterable[Drawing]:
    from byrote.explore.monte_carlo import Count
    from byrote.report.figures.search import (
        Convergence,
        SampledMass,
        monte_carlo_convergence,
        sampled_against_computed,
    )

    known = [row for row in rows if row["certified_upper"] is not None]
    if known:
        names = ("certified_lower", "certified_upper", "mass", "mass_low", "mass_high")
        figure = sampled_against_computed([SampledMass(*(row[name] for name in names)) for row in known])
        caption = "Share of samples against the computed mass of every window; on the dashed line they are equal."
        yield Drawing("sampled-against-computed", caption, figure)
    for number, row in enumerate(rows[:FIGURES], 1):
        counts = [
            Count(int(hits), int(samples), int(evals))
            for hits, samples, evals in zip(row["curve_hits"], row["curve_samples"], row["curve_evals"], strict=True)
        ]
        limits = [share_interval(count, interval) for count in counts]
        line = Convergence(
            f"plain samples, 95 % interval ({interval})",
            tuple(float(count.token_evals) for count in counts),
            tuple(count.hits / count.samples for count in counts),
            tuple(low for low, _ in limits),
            tuple(high for _, high in limits),
        )
        lower, upper = row["certified_lower"], row["certified_upper"]
        bounds = (0.0, 1.0) if upper is None else (lower, upper)
        figure = monte_carlo_convergence([line], lower=bounds[0], upper=bounds[1], title=row["window_id"])
        caption = f"{row['window_id']}: the estimate as samples are added, against what is certified."
        yield Drawing(f"samples-{number}", caption, figure)


SECTION = Section(read)
