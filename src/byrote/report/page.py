"""Content as a page, with its figures (SVG, PNG) and tables (CSV) beside it; templates and glossary of every page.

A page needs no network. Whatever comes from texts, names or manifests is escaped, never markup.
"""

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from markupsafe import Markup

from byrote.errors import StorageError
from byrote.report.content import Cells, Content, Drawing, Link, Reader, Rows, Written
from byrote.report.figures.style import drawn_rows, house_style, save_bytes
from byrote.report.templates import FOLDER, rendered
from byrote.report.words import listed
from byrote.store.export import inert_text
from byrote.store.files import atomic_file, make_folder, note_written, noted_before

TERMS = {
    "scan": "window threshold edits greedy verbatim near bounds answers interval control membership",
    "change": "window threshold edits near bounds answers interval control",
    "mc": "window edits near bounds interval samples",
    "prior": "prior prior-verdict prior-pool prior-thresholds interval control",
    "audit": "nv-recall phase-1 control",
    "recall": "nv-recall",
    "counterfactual": "prior counterfactual interval copies",
    "study": "window threshold greedy verbatim near bounds interval queries cell samples",
}
"""Kind → the definitions that its page ends with; a page with the shaded text has all of the first part."""


@dataclass(frozen=True)
class PagePart:
    """One content of the page; `folder` is where its figures and tables are, relative to the page."""

    content: Content
    reader: Reader | None
    figures: Sequence[tuple[Drawing, str]]
    """Each with its SVG as a URL."""
    folder: str

    @property
    def compared(self) -> tuple[Cells, ...]:
        return () if self.reader is None else self.reader.compared

    @property
    def tables(self) -> tuple[Cells, ...]:
        """Without the table of rates where cards show them."""
        own = () if self.compared else self.content.tables
        further = () if self.reader is None else self.reader.tables
        return tuple(table for table in (*own, *further) if not (self.content.cards and table.name == "rates"))


def write_page(contents: Sequence[Content], out: Path) -> Written:
    """Write `out`/index.html, figures, tables and, of scans with probabilities, model_card.md.

    Several contents stand under each other, each with a folder for its files. One with a shaded text then has its own
    page in a folder of its kind, and a link to it.
    """
    files: dict[Path, bytes] = {}
    parts: list[PagePart] = []
    others: list[Path] = []
    for number, content in enumerate(contents, 1):
        folder = f"{number}-{content.kind}/" if len(contents) > 1 else ""
        if folder and content.reader is not None:
            make_folder(out / content.kind, inside=out)
            own = write_page([content], out / content.kind)
            others += [own.page, *own.others]
            link = Link("The whole report, with its texts", f"{content.kind}/index.html")
            content = replace(content, reader=None, data=None, draw=lambda: (), links=(*content.links, link))
        figures, drawn = draw_figures(content.draw, out / folder)
        reader = None if content.reader is None else content.reader()
        files |= drawn | _tables(content, out / folder)
        if reader is not None:
            files[out / "model_card.md"] = ("\n\n".join(reader.model_cards) + "\n").encode()
        parts.append(PagePart(content, reader, figures, folder))
    page = out / "index.html"
    write_files(files | {page: page_html(parts).encode("utf-8", "backslashreplace")}, out)
    return Written(page, (*files, *others))


def page_html(parts: Sequence[PagePart]) -> str:
    (reader,) = [part.reader for part in parts if part.reader is not None] or (None,)
    glossary = definitions(part.content.kind for part in parts) if reader is None else list(GLOSSARY)
    script = "" if reader is None else page_script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return rendered(
        "page.html",
        title=f"{listed([part.content.label for part in parts])} · byrote{' memorization report' if reader else ''}",
        parts=parts,
        is_alone=len(parts) == 1,
        has_reader=reader is not None,
        glossary=glossary,
        glossary_short={entry.anchor: entry.short for entry in glossary},
        run_ids=[
            [str(json.loads(text).get("run_id", "unfinished")) for _, text in part.content.manifests] for part in parts
        ],
        script=Markup(script),
        # What the content security policy must name for the browser to run exactly this script and no other.
        script_hash=Markup(f"sha256-{digest}") if script else None,
    )


def page_script() -> str:
    """All script files in order, in one function scope."""
    parts = [path.read_text(encoding="utf-8") for path in sorted((FOLDER / "script").glob("*.js"))]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


@house_style()
def draw_figures(
    draw: Callable[[], Iterable[Drawing]], folder: Path
) -> tuple[list[tuple[Drawing, str]], dict[Path, bytes]]:
    """The drawings, each with its SVG as a URL; and their files inside `folder`: SVG, PNG, PDF, the numbers as CSV."""
    shown: list[tuple[Drawing, str]] = []
    files: dict[Path, bytes] = {}
    for drawing in draw():
        drawn = {kind: save_bytes(drawing.figure, kind) for kind in ("svg", "png", "pdf")}
        shown.append((drawing, "data:image/svg+xml;base64," + base64.b64encode(drawn["svg"]).decode()))
        if rows := drawn_rows(drawing.figure):
            drawn["csv"] = _csv_of(rows)
        files |= {folder / "figures" / f"{drawing.name}.{kind}": content for kind, content in drawn.items()}
    return shown, files


def _tables(content: Content, folder: Path) -> dict[Path, bytes]:
    """As CSV. Names of documents, kinds and tags are anything: none of them is a formula to a spreadsheet."""
    texts = {}
    if content.data is not None:
        for name, rows in content.data().items():
            if rows:
                texts[name] = _csv_of(rows)
    else:
        for cells in content.tables:
            text = io.StringIO()
            inert_rows = [[_inert(cell) for cell in row] for row in cells.rows]
            csv.writer(text, quoting=csv.QUOTE_ALL).writerows([cells.heads, *inert_rows])
            texts[cells.name] = text.getvalue().encode("utf-8", "backslashreplace")
    return {folder / "tables" / f"{name}.csv": text for name, text in texts.items()}


def _csv_of(rows: Rows) -> bytes:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    inert = pl.col(pl.String).map_elements(inert_text, return_dtype=pl.String)
    return frame.with_columns(inert).write_csv().encode("utf-8", "backslashreplace")


def _inert(cell: str) -> str:
    """A cell that is no formula; numbers stay numbers, also negative ones."""
    try:
        float(cell)
    except ValueError:
        return inert_text(cell)
    return cell


def write_files(files: dict[Path, bytes], out: Path) -> None:
    """Write the files of a report inside `out`, and their hashes into its written.json; figures that an earlier report
    wrote beside these, and this one did not, are removed."""
    folders = {path.parent for path in files if path.parent.name == "figures"}
    try:
        for path, content in files.items():
            make_folder(path.parent, inside=out)
            with atomic_file(path) as file:
                file.write(content)
        for path in {out / name for name in noted_before(out)} - set(files):
            if path.parent in folders:
                path.unlink(missing_ok=True)
        note_written(out, files)
    except OSError as error:
        raise StorageError(
            f"Cannot write the report to {out}: {error.strerror or error}. Choose another --out."
        ) from error


PARTS = ("## What a reader meets\n", "## What pages of other runs say\n")
ENTRY = re.compile(
    r"### (?P<term>[^\n]+)\n<a id=\"(?P<anchor>[\w-]+)\"></a>\n(?P<text>.+?)\n\n(?:    (?P<formula>[^\n]+)\n)?", re.S
)


@dataclass(frozen=True)
class Definition:
    """One term: what it means in plain words, and the formula where there is one."""

    anchor: str
    term: str
    text: str
    formula: str | None = None

    @property
    def short(self) -> str:
        return self.text.split(". ")[0].rstrip(".") + "."


def read_glossary(document: str, heading: str = PARTS[0]) -> tuple[Definition, ...]:
    """The entries of one part."""
    part = document.split(heading)[1].split("\n## ")[0]
    return tuple(
        Definition(found["anchor"], found["term"], found["text"].replace("\n", " "), found["formula"])
        for found in ENTRY.finditer(part + "\n")
    )


_DOCUMENT = (FOLDER / "glossary.md").read_text(encoding="utf-8")
GLOSSARY, FURTHER = (read_glossary(_DOCUMENT, heading) for heading in PARTS)
"""What the page of a scan defines, and what pages of other runs define beside it."""


def definitions(kinds: Iterable[str]) -> list[Definition]:
    """What the pages of these kinds define, each word once."""
    wanted = {term for kind in kinds for term in TERMS.get(kind, "").split()}
    return [entry for entry in (*GLOSSARY, *FURTHER) if entry.anchor in wanted]
