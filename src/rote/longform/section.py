"""The report of an audit: an exhibit to read, its figures, and one file that holds everything with its hashes."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rote import __version__
from rote.errors import StorageError
from rote.longform.audit_folder import AuditFolder, read_audit
from rote.longform.drawings import audit_drawings, recall_of
from rote.longform.exhibit import exhibit
from rote.longform.exhibit_lines import terminal_lines
from rote.longform.exhibit_texts import PRINTED_PASSAGES, PRINTED_ROWS, MapLine, passages_of
from rote.longform.exhibit_words import (
    control_row,
    control_sentence,
    elsewhere_rows,
    facts,
    headline,
    model_name,
    notices,
    spread_sentence,
    trial_row,
)
from rote.longform.passages import Pair
from rote.longform.recall import RecallResult
from rote.report.content import Asked, Cells, Content, Link, Section, Written
from rote.report.content_page import write_page
from rote.report.drawing import Drawing
from rote.report.figures.longform import recall_bars
from rote.report.figures.style import save_bytes
from rote.report.html.render import PageFigure
from rote.report.html.templates import rendered
from rote.report.words import integer, listed
from rote.store.atomic import atomic_file, make_folder

HTML = Path(__file__).parent / "html"
README = """This is the exhibit of an audit by rote {version}, run {run_id}.

index.html            the page to read
book.txt              the text that was asked for; control-000.txt ... the controls
generations/          what the model wrote
journal.jsonl         every request and answer, each line bound to the one before by its hash
findings.json         every number
manifest.json         how it was made, and the hash of every file
SHA256SUMS            the same hashes for a shell

To check that nothing was changed:        sha256sum -c SHA256SUMS
To work every number out again as well:   rote verify-run .
"""


class ExhibitPaths(NamedTuple):
    page: Path
    bundle: Path
    figures: tuple[Path, ...]


def write_exhibit(run: Path, out: Path | None = None) -> ExhibitPaths:
    """Write `out`/index.html, figures and exhibit.zip (default: RUN/report), for the owner's eyes only."""
    audit = read_audit(run)
    folder = run / "report" if out is None else out
    drawings = list(audit_drawings(audit))
    vectors = {drawing.name: save_bytes(drawing.figure, "svg") for drawing in drawings}
    page = render(audit, [PageFigure(d.name, d.caption, vectors[d.name]) for d in drawings if not d.is_wide]).encode()
    figures = {
        folder / "figures" / f"{drawing.name}.{kind}": content
        for drawing in drawings
        for kind, content in (("svg", vectors[drawing.name]), ("png", save_bytes(drawing.figure, "png")))
    }
    paths = ExhibitPaths(folder / "index.html", folder / "exhibit.zip", tuple(figures))
    try:
        make_folder(folder / "figures", inside=run if out is None else out)
        for path, content in {**figures, paths.page: page, paths.bundle: _bundle(audit, page)}.items():
            with atomic_file(path) as file:
                file.write(content)
    except OSError as error:
        raise StorageError(f"Cannot write the exhibit to {folder}: {error.strerror or error}.") from error
    return paths


def render(audit: AuditFolder, figures: list[PageFigure]) -> str:
    """The page of an audit."""
    return _page("exhibit.html", exhibit(audit) | {"figures": figures})


def recall_page(book: str, generation: str, result: RecallResult, *, title: str, facts: list[tuple[str, str]]) -> str:
    """The page of one measurement: the map, the passages, and both texts side by side."""
    passages = passages_of([(result, Pair.of(book, generation), "")])
    values = {
        "headline": title,
        "facts": facts,
        "book_words": integer(result.book_words),
        "maps": [MapLine("the book", (), tuple(one.on_map for one in passages))],
        "passages": passages,
        "elsewhere": list(elsewhere_rows([result.record()])),
    }
    return _page("recall.html", values)


def _page(template: str, values: Mapping[str, Any]) -> str:
    printed = {"printed_passages": PRINTED_PASSAGES, "printed_rows": PRINTED_ROWS, "title": values["headline"]}
    text = rendered(template, styles=[HTML / "exhibit.css"], folder=HTML, **values, **printed)
    # Half of a surrogate pair has no place in a file; it is shown by its number.
    return text.encode("utf-8", "backslashreplace").decode()


def _bundle(audit: AuditFolder, page: bytes) -> bytes:
    """The run's files, the page and their hashes; the same bytes for the same audit."""
    files = {name: (audit.path / name).read_bytes() for name in ("manifest.json", *audit.manifest["files"])}
    files["index.html"] = page
    files["README.txt"] = README.format(version=__version__, run_id=audit.run_id).encode()
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    written = datetime.fromisoformat(audit.manifest["written_at"]).timetuple()[:6]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(f"exhibit/{name}", date_time=written)
            entry.external_attr, entry.compress_type = 0o600 << 16, zipfile.ZIP_DEFLATED
            bundle.writestr(entry, content)
    return buffer.getvalue()


def read(runs: Sequence[Path]) -> Content:
    """Audits in a few lines: every trial and control of each."""
    audits = [read_audit(run) for run in runs]
    labels = [f"{model_name(audit)}, {audit.book_name}" for audit in audits]
    first = audits[0]
    shares = [f"{headline(audit)}" for audit in audits]
    sentences = [spread_sentence(row) for audit in audits for row in audit.findings["spread"] if row["trials"] > 1]
    sentences += [control_sentence(found) for audit in audits if (found := audit.findings["controls"])]
    return Content(
        kind="audit",
        label=listed(labels),
        headline=f"{listed(shares, most=len(shares))}.",
        date=str(first.manifest["written_at"])[:10],
        facts=tuple(facts(first)),
        notices=tuple(dict.fromkeys(notice for audit in audits for notice in notices(audit))),
        tables=(_trials(audits, labels), *_controls(audits)),
        sentences=tuple(sentences),
        draw=lambda: _compared(audits, labels),
        manifests=tuple((audit.path.name, json.dumps(audit.manifest, indent=2)) for audit in audits),
    )


def show(run: Path, asked: Asked) -> Iterable[str]:
    return terminal_lines(read_audit(run))


def write(runs: Sequence[Path], out: Path, asked: Asked) -> Written:
    """The exhibit of one audit; of several, each has its own below a page that compares them."""
    if len(runs) == 1:
        paths = write_exhibit(runs[0], out)
        return Written(paths.page, (*paths.figures, paths.bundle))
    folders = [out / f"exhibit-{number}" for number in range(1, len(runs) + 1)]
    for folder in folders:
        make_folder(folder, inside=out)
    exhibits = [write_exhibit(run, folder) for run, folder in zip(runs, folders, strict=True)]
    links = tuple(
        Link(f"The exhibit of {run.name}", paths.page.relative_to(out).as_posix())
        for run, paths in zip(runs, exhibits, strict=True)
    )
    page = write_page([replace(read(runs), links=links)], out)
    return Written(page.page, (*page.others, *(path for paths in exhibits for path in (paths.page, paths.bundle))))


def _trials(audits: Sequence[AuditFolder], labels: Sequence[str]) -> Cells:
    rows = tuple(
        (label, row["trial"], row["settings"], row["nv_recall"], row["longest"])
        for audit, label in zip(audits, labels, strict=True)
        for row in map(trial_row, audit.trials)
    )
    return Cells("trials", "Trials", ("audit", "trial", "settings", "nv-recall", "longest passage"), rows)


def _controls(audits: Sequence[AuditFolder]) -> Iterator[Cells]:
    rows = tuple(
        (row["name"], row["similarity"], row["asked"], row["null"], row["run"])
        for audit in audits
        for row in map(control_row, audit.findings["controls"])
    )
    if rows:
        heads = ("control book", "target found", "nv-recall when asked for", "nv-recall of the answers", "longest run")
        yield Cells("controls", "What the controls gave", heads, rows)


def _compared(audits: Sequence[AuditFolder], labels: Sequence[str]) -> Iterator[Drawing]:
    recalls = [recall_of(label, audit.best) for audit, label in zip(audits, labels, strict=True)]
    if any(one.matched for one in recalls):
        yield Drawing("nv-recall", "nv-recall of the best trial of each audit.", recall_bars(recalls))


SECTION = Section("audit", read, show, write)
