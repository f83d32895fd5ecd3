"""Content as a page, with its figures (SVG, PNG) and tables (CSV) beside it."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from byrote.errors import StorageError
from byrote.report.content import Content, Written
from byrote.report.figures.style import save_bytes
from byrote.report.scan_page import PageFigure
from byrote.report.templates import FURTHER, GLOSSARY, Definition, rendered
from byrote.report.words import listed
from byrote.store.export import inert_text
from byrote.store.files import atomic_file, make_folder

ROWS_SHOWN = 200
TERMS = {
    "scan": "window threshold edits greedy verbatim near bounds bracket interval control membership",
    "mc": "window edits near bounds interval samples",
    "prior": "prior prior-verdict prior-thresholds interval control",
    "audit": "nv-recall phase-1 control",
    "recall": "nv-recall",
    "counterfactual": "prior counterfactual interval copies",
    "study": "window threshold greedy verbatim near bounds interval queries cell samples",
    "study_montecarlo": "window near bounds interval samples",
}
"""Kind → the definitions that its page ends with."""


@dataclass(frozen=True)
class Part:
    """One content of the page; `folder` is where its figures and tables are, relative to the page."""

    content: Content
    figures: tuple[PageFigure, ...]
    folder: str


def write_page(contents: Sequence[Content], out: Path) -> Written:
    """Write `out`/index.html with all contents under each other; with several, each has a folder of its own."""
    files: dict[Path, bytes] = {}
    parts = []
    for number, content in enumerate(contents, 1):
        folder = f"{number}-{content.kind}/" if len(contents) > 1 else ""
        figures, written = _figures(content, out / folder)
        files |= written | _tables(content, out / folder)
        parts.append(Part(content, figures, folder))
    page = out / "index.html"
    title = f"{listed([part.content.label for part in parts])} · byrote"
    run_ids = [_run_ids(content) for content in contents]
    glossary = definitions(content.kind for content in contents)
    text = rendered("content.html", title=title, parts=parts, rows_shown=ROWS_SHOWN, glossary=glossary, run_ids=run_ids)
    files[page] = text.encode("utf-8", "backslashreplace")
    write_files(files, out)
    return Written(page, tuple(path for path in files if path != page))


def definitions(kinds: Iterable[str]) -> list[Definition]:
    """What the pages of these kinds define, each word once."""
    wanted = {term for kind in kinds for term in TERMS.get(kind, "").split()}
    return [entry for entry in (*GLOSSARY, *FURTHER) if entry.anchor in wanted]


def _run_ids(content: Content) -> list[tuple[str, str]]:
    """(name of the run, its id), for a reader of the print."""
    return [(name, str(json.loads(text).get("run_id", "unfinished"))) for name, text in content.manifests]


def write_files(files: dict[Path, bytes], out: Path) -> None:
    try:
        for path, content in files.items():
            make_folder(path.parent, inside=out)
            with atomic_file(path) as file:
                file.write(content)
    except OSError as error:
        raise StorageError(
            f"Cannot write the report to {out}: {error.strerror or error}. Choose another --out."
        ) from error


def _figures(content: Content, folder: Path) -> tuple[tuple[PageFigure, ...], dict[Path, bytes]]:
    shown, files = [], {}
    for drawing in content.draw():
        vector = save_bytes(drawing.figure, "svg")
        files[folder / "figures" / f"{drawing.name}.svg"] = vector
        files[folder / "figures" / f"{drawing.name}.png"] = save_bytes(drawing.figure, "png")
        shown.append(PageFigure(drawing.name, drawing.caption, vector, is_wide=drawing.is_wide))
    return tuple(shown), files


def _tables(content: Content, folder: Path) -> dict[Path, bytes]:
    files = {}
    for cells in content.tables:
        text = io.StringIO()
        rows = [[_inert(cell) for cell in row] for row in cells.rows]
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows([cells.heads, *rows])
        files[folder / "tables" / f"{cells.name}.csv"] = text.getvalue().encode("utf-8", "backslashreplace")
    return files


def _inert(cell: str) -> str:
    """A cell that is no formula; numbers stay numbers, also negative ones."""
    try:
        float(cell)
    except ValueError:
        return inert_text(cell)
    return cell
