"""How scans are shown: the summary in a terminal, the page with the shaded text, and several models compared."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import RenderableType

from byrote.report.content import Asked, Content, Section, Written
from byrote.report.queries import query_numbers, query_tables
from byrote.report.scan_content import scan_content
from byrote.report.terminal import show_content, show_run
from byrote.report.view import load_view, with_threshold


def read(runs: Sequence[Path]) -> Content:
    return scan_content([load_view(run) for run in runs])


def read_as_asked(runs: Sequence[Path], asked: Asked) -> Content:
    views = [with_threshold(load_view(run), asked.threshold) for run in runs]
    content = scan_content(views)
    if not asked.queries:
        return content
    wanted = {"queries": asked.queries, "probabilities": asked.probabilities}
    found = {view.label: query_numbers(view, **wanted) for view in views if view.population.has_masses}
    numbers = {label: {**own, "queries": found.get(label, [])} for label, own in content.numbers.items()}
    return replace(content, numbers=numbers)


def show(run: Path, asked: Asked) -> Iterable[RenderableType]:
    view = with_threshold(load_view(run), asked.threshold)
    if not view.population.has_masses:
        yield from show_content(scan_content([view]))
    elif asked.queries:
        yield from query_tables(view, queries=asked.queries, probabilities=asked.probabilities)
    else:
        yield show_run(view)


def write(runs: Sequence[Path], out: Path, asked: Asked) -> Written:
    # Drawing needs matplotlib, which a terminal does not wait for.
    from byrote.report.build import build_report

    paths = build_report(runs, out, threshold=asked.threshold)
    return Written(paths.page, (*paths.figures, *paths.tables, *paths.model_cards))


SECTION = Section("scan", read, show, write, read_as_asked)
