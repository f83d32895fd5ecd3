"""The report of an audit: an exhibit to read, its figures, and one file that holds everything with its hashes."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rote import __version__
from rote.errors import StorageError
from rote.longform.audit_folder import AuditFolder, read_audit
from rote.longform.exhibit import exhibit
from rote.longform.exhibit_texts import PRINTED_PASSAGES, PRINTED_ROWS, MapLine, passages_of
from rote.longform.exhibit_words import elsewhere_rows
from rote.longform.passages import Pair
from rote.longform.recall import RecallResult
from rote.report.drawing import Drawing
from rote.report.figures.longform import (
    Likeness,
    MatchBlock,
    Recall,
    Tries,
    block_map,
    null_distribution,
    recall_bars,
    similarity_by_tries,
    word_counts,
)
from rote.report.figures.style import save_bytes
from rote.report.html.render import FOLDER as REPORT_HTML
from rote.report.html.render import PageFigure, tied
from rote.report.words import integer
from rote.store.atomic import atomic_file

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
    drawings = list(_drawings(audit))
    vectors = {drawing.name: save_bytes(drawing.figure, "svg") for drawing in drawings}
    page = render(audit, [PageFigure(d.name, d.caption, vectors[d.name]) for d in drawings if not d.is_wide]).encode()
    figures = {
        folder / "figures" / f"{drawing.name}.{kind}": content
        for drawing in drawings
        for kind, content in (("svg", vectors[drawing.name]), ("png", save_bytes(drawing.figure, "png")))
    }
    paths = ExhibitPaths(folder / "index.html", folder / "exhibit.zip", tuple(figures))
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for path, content in {**figures, paths.page: page, paths.bundle: _bundle(audit, page)}.items():
            with atomic_file(path, is_private=True) as file:
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
        "run_id": None,
    }
    return _page("recall.html", values)


def _page(template: str, values: Mapping[str, Any]) -> str:
    """The page as text; whatever comes from books, answers or names is escaped, never markup."""
    environment = Environment(
        loader=FileSystemLoader(HTML), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["tied"] = tied
    style = (REPORT_HTML / "page.css").read_text(encoding="utf-8") + (HTML / "exhibit.css").read_text(encoding="utf-8")
    printed = {"printed_passages": PRINTED_PASSAGES, "printed_rows": PRINTED_ROWS}
    text = environment.get_template(template).render(**values, **printed, style=Markup(style), version=__version__)
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


def _drawings(audit: AuditFolder) -> Iterator[Drawing]:
    """The map of the best trial for papers; on the page, what several trials, tries or controls add."""
    best = audit.best
    for number, section in enumerate(best["sections"]):
        if section["recall"] is not None:
            yield Drawing(
                f"map-{number + 1}", "Where the passages stand in book and answer.", _map(section), is_wide=True
            )
    asked = [(f"trial {trial['trial']}", trial) for trial in audit.trials]
    asked += [(f"control: {control['name']}", control["asked"]) for control in audit.findings["controls"]]
    recalls = [_recall(label, trial) for label, trial in asked]
    if len(recalls) > 1 and any(one.matched for one in recalls):
        caption = "nv-recall of every trial and control; a failed phase 1 recovered nothing."
        yield Drawing("nv-recall", caption, recall_bars(recalls))
    answered = [one for one in recalls if one.generated_words]
    if len(answered) > 1:
        yield Drawing("words", "Words matched, missing and added.", word_counts(answered))
    null = [
        Likeness(measure["nv_recall"], measure["longest_run"])
        for control in audit.findings["controls"]
        for measure in control["null"]
    ]
    if null:
        found = [Likeness(trial["nv_recall"] or 0.0, trial["longest_block"]) for trial in audit.trials]
        caption = "The answers measured against control books, beside what they have of this book."
        yield Drawing("null-distribution", caption, null_distribution(null, found))
    tries = [
        Tries(f"{label}, {section['name']}", tuple(section["tries"]))
        for label, trial in asked
        for section in trial["sections"]
        if len(section["tries"]) > 1
    ]
    if tries:
        threshold = audit.manifest["config"]["similarity"]
        caption = (
            "The best share of the target found after so many tries of phase 1; the line is what it takes to go on."
        )
        yield Drawing("similarity-by-tries", caption, similarity_by_tries(tries, threshold=threshold))


def _map(section: Mapping[str, Any]) -> Any:
    recall = section["recall"]
    blocks = [
        MatchBlock(
            block["book_word_start"],
            block["book_word_end"],
            block["generation_word_start"],
            block["generation_word_end"],
        )
        for block in recall["blocks"]
    ]
    return block_map(blocks, book_words=recall["book_words"], generated_words=recall["generation_words"])


def _recall(label: str, trial: Mapping[str, Any]) -> Recall:
    generated = sum(section["recall"]["generation_words"] for section in trial["sections"] if section["recall"])
    return Recall(label, trial["matched_words"], trial["book_words"], generated, trial["longest_block"])
