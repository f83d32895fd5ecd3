"""The report folder: one page, its figures as SVG and PNG, its tables as CSV."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from byrote.errors import ConfigError, StorageError
from byrote.report.comparison import Comparison, compare_runs, compare_table, paired_differences
from byrote.report.content import Drawing
from byrote.report.figures.style import save_bytes
from byrote.report.gallery import draw_all
from byrote.report.groups import groups_table
from byrote.report.membership import content_without_masses, separation_table
from byrote.report.model_card import model_card
from byrote.report.page import write_page
from byrote.report.posthoc import posthoc_table
from byrote.report.risk import risk_table
from byrote.report.scan_page import PageFigure, render_page
from byrote.report.sweeps import sweep_table
from byrote.report.tables import copies_table, documents_table, rates_table
from byrote.report.view import FROM_CONTROL, RunView, at_one_threshold, load_view, told_apart, with_threshold
from byrote.store.export import inert_text
from byrote.store.files import atomic_file, make_folder

OWN_FIGURE = re.compile(
    r"(rates-by-edits|verdicts-by-edits|queries|mass|mass-gain|shells|shell-violins|ranks|book|texts|copies|kinds|tags"
    r"|sweep-[a-z-]+|membership|risk|[a-z-]+-by-model|differences|beam-widths)(-run\d+|-\d+)?\.(svg|png)"
)


@dataclass(frozen=True)
class ReportPaths:
    """What was written."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    model_cards: tuple[Path, ...]
    """One, or none for runs without probabilities."""


def build_report(run_paths: Sequence[Path], out: Path, *, threshold: str | None = None) -> ReportPaths:
    """Write `out`/index.html, figures/*.svg|png, tables/*.csv and model_card.md for one run or several side by side."""
    if not run_paths:
        raise ConfigError("No run was given; name at least one folder that was --out of a scan.")
    if threshold is not None and threshold.startswith(FROM_CONTROL) and len(run_paths) > 1:
        raise ConfigError(
            f"threshold is {threshold}, but {len(run_paths)} runs have controls of their own; choose τ from one "
            "with byrote show, and give the number."
        )
    views = at_one_threshold(told_apart([with_threshold(load_view(Path(path)), threshold) for path in run_paths]))
    if not all(view.population.has_masses for view in views):
        page, others = write_page([content_without_masses(views)], out)
        tables = tuple(path for path in others if path.suffix == ".csv")
        return ReportPaths(page, tuple(path for path in others if path not in tables), tables, ())
    comparison = compare_runs(views) if len(views) > 1 else None
    drawings = draw_all(views, comparison)
    try:
        for name in ("figures", "tables"):
            make_folder(out / name, inside=out)
        figures, page_figures = write_figures(drawings, out / "figures")
        tables = write_tables(views, comparison, out / "tables")
        page = out / "index.html"
        with atomic_file(page) as file:
            file.write(render_page(views, page_figures, comparison).encode())
        card = out / "model_card.md"
        with atomic_file(card) as file:
            file.write(("\n\n".join(model_card(view) for view in views) + "\n").encode())
    except OSError as error:
        raise StorageError(
            f"Cannot write the report to {out}: {error.strerror or error}. Choose another --out."
        ) from error
    return ReportPaths(page, figures, tables, (card,))


def write_figures(drawings: Sequence[Drawing], folder: Path) -> tuple[tuple[Path, ...], list[PageFigure]]:
    """Each drawing as SVG and PNG; the SVG bytes are also handed to the page."""
    for path in folder.iterdir():
        # An earlier report of other runs may have had figures that this one does not; only names of ours go.
        if OWN_FIGURE.fullmatch(path.name):
            path.unlink()
    paths: list[Path] = []
    page_figures = []
    for drawing in drawings:
        vector = save_bytes(drawing.figure, "svg")
        for kind, content in (("svg", vector), ("png", save_bytes(drawing.figure, "png"))):
            path = folder / f"{drawing.name}.{kind}"
            with atomic_file(path) as file:
                file.write(content)
            paths.append(path)
        page_figures.append(
            PageFigure(drawing.name, drawing.caption, vector, anchor=drawing.anchor, is_wide=drawing.is_wide)
        )
    return tuple(paths), page_figures


def write_tables(views: Sequence[RunView], comparison: Comparison | None, folder: Path) -> tuple[Path, ...]:
    """rates.csv, documents.csv, copies.csv where copies are known, groups.csv where records have kinds or tags,
    policies.csv of a sweep, posthoc.csv where continuations were judged afterwards, membership.csv of such scores,
    risk.csv of documents of several windows."""
    paired = [] if comparison is None else paired_differences(comparison, views[0].threshold)
    tables: dict[str, pl.DataFrame | None] = {
        "compare": compare_table(paired),
        "rates": rates_table(views),
        "documents": documents_table(views),
        "copies": copies_table(views),
        "groups": groups_table(views),
        "policies": sweep_table(views),
        "posthoc": posthoc_table(views),
        "membership": separation_table(views),
        "risk": risk_table(views),
    }
    paths = []
    for name, table in tables.items():
        if table is not None:
            path = folder / f"{name}.csv"
            with atomic_file(path) as file:
                # Names of documents, kinds and tags are whatever somebody called them.
                table.with_columns(pl.col(pl.String).map_elements(inert_text, return_dtype=pl.String)).write_csv(file)
            paths.append(path)
    return tuple(paths)
