"""How the windows that a study sampled are shown by themselves: shares of samples beside the certified bounds."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Section
from byrote.report.words import integer, listed, plural, probability
from byrote.stats.intervals import exact_interval
from byrote.store.read import read_run
from byrote.study.run import SAMPLED_KIND

HEADS = ("window", "samples", "hits", "share", "95 % interval", "certified", "evaluations")
NOT_CERTIFIED = "Shares of samples are not certified; intervals hold at 95 % for each window by itself."


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    """Windows of one cell, or of several under each other."""
    is_unique = len({path.name for path in paths}) == len(paths)
    found = {path.name if is_unique else str(path): read_run(path) for path in paths}
    rows = {name: run.results.rows(named=True) for name, run in found.items()}
    manifests = {name: run.manifest for name, run in found.items() if run.manifest is not None}
    samples = sum(row["samples"][-1] for each in rows.values() for row in each)
    return Content(
        kind=SAMPLED_KIND,
        label=listed(list(found)),
        headline=f"{integer(samples)} plain samples of {plural(sum(map(len, rows.values())), 'window')} of a study.",
        notices=tuple(f"{name} is not finished; run the study again." for name in found if name not in manifests),
        tables=tuple(
            Cells(f"masses-{number}" if len(rows) > 1 else "masses", name, HEADS, tuple(map(_cells, each)))
            for number, (name, each) in enumerate(rows.items(), start=1)
        ),
        sentences=(NOT_CERTIFIED,),
        draw=lambda: _drawings(rows),
        manifests=tuple((name, json.dumps(each, indent=2, ensure_ascii=False)) for name, each in manifests.items()),
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    hits, samples = row["hits"][-1], row["samples"][-1]
    interval = exact_interval(hits, samples)
    return (
        row["window_id"],
        integer(samples),
        integer(hits),
        probability(hits / samples),
        f"{probability(interval.low)} to {probability(interval.high)}",
        f"{probability(row['mass_lower'])} to {probability(row['mass_upper'])}",
        integer(round(row["evaluations"][-1])),
    )


def _drawings(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Drawing]:
    from byrote.study.figures import convergence_drawings  # needs matplotlib, which the terminal does not

    return convergence_drawings(rows)


SECTION = Section(read)
