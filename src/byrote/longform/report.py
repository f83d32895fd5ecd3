"""The report of an audit: its exhibit (a page, figures, and one file with everything), and audits compared."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from byrote import __version__
from byrote.longform.exhibit import (
    control_row,
    control_sentence,
    exhibit,
    facts,
    headline,
    model_name,
    notices,
    spread_sentences,
    terminal_lines,
    trial_row,
)
from byrote.longform.passages import PRINTED_PASSAGES, PRINTED_ROWS
from byrote.longform.run import AuditFolder, read_audit
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Link, Section, Written
from byrote.report.figures.longform import (
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
from byrote.report.figures.style import save_bytes
from byrote.report.page import PageFigure, rendered, write_files, write_page
from byrote.report.words import listed
from byrote.store.files import make_folder

HTML = Path(__file__).parent / "html"
README = """This is the exhibit of an audit by byrote {version}, run {run_id}.

index.html            the page to read
book.txt              the text that was asked for; control-000.txt ... the controls
generations/          what the model wrote
journal.jsonl         every request and answer, each line bound to the one before by its hash
findings.json         every number
manifest.json         how it was made, and the hash of every file
SHA256SUMS            the same hashes for a shell

To check that nothing was changed:        sha256sum -c SHA256SUMS
To work every number out again as well:   byrote verify-run .
"""


class ExhibitPaths(NamedTuple):
    page: Path
    bundle: Path
    figures: tuple[Path, ...]


def write_exhibit(run: Path, out: Path | None = None) -> ExhibitPaths:
    """Write `out`/index.html, figures and exhibit.zip (default: RUN/report), for the owner's eyes only."""
    audit = read_audit(run)
    folder = run / "report" if out is None else out
    figures: dict[Path, bytes] = {}
    shown = []
    for drawing in _drawings(audit):
        vector = save_bytes(drawing.figure, "svg")
        figures[folder / "figures" / f"{drawing.name}.svg"] = vector
        figures[folder / "figures" / f"{drawing.name}.png"] = save_bytes(drawing.figure, "png")
        # The page has a map of its own, whose passages are links.
        if not drawing.is_wide:
            shown.append(PageFigure(drawing.name, drawing.caption, vector))
    page = render_page("exhibit.html", exhibit(audit) | {"figures": shown}).encode()
    paths = ExhibitPaths(folder / "index.html", folder / "exhibit.zip", tuple(figures))
    write_files(figures | {paths.page: page, paths.bundle: _bundle(audit, page)}, run if out is None else out)
    return paths


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """A page with passages side by side; `values` has its headline."""
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


def _drawings(audit: AuditFolder) -> Iterator[Drawing]:
    """The map of the best trial for papers; on the page, what several trials, tries or controls add."""
    best = audit.best
    for number, section in enumerate(best["sections"]):
        if section["recall"] is not None:
            caption = "Where the passages stand in book and answer."
            yield Drawing(f"map-{number + 1}", caption, map_figure(section["recall"]), is_wide=True)
    asked = [(f"trial {trial['trial']}", trial, False) for trial in audit.trials]
    asked += [(f"control: {control['name']}", control["asked"], True) for control in audit.findings["controls"]]
    recalls = [_recall_of(label, trial, is_control=is_control) for label, trial, is_control in asked]
    if len(recalls) > 1 and any(one.matched for one in recalls):
        caption = "nv-recall of every trial and control; where phase 1 failed nothing was measured."
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
        for label, trial, _ in asked
        for section in trial["sections"]
        if len(section["tries"]) > 1
    ]
    if tries:
        threshold = audit.manifest["config"]["similarity"]
        caption = "The best share of the target found after so many tries of phase 1, and the share needed to go on."
        yield Drawing("similarity-by-tries", caption, similarity_by_tries(tries, threshold=threshold))


def map_figure(recall: Mapping[str, Any]) -> Figure:
    """Book above, answer below, from the record of a measurement."""
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


def _recall_of(label: str, trial: Mapping[str, Any], *, is_control: bool = False) -> Recall:
    generated = sum(section["recall"]["generation_words"] for section in trial["sections"] if section["recall"])
    return Recall(label, trial["matched_words"], trial["book_words"], generated, trial["longest_block"], is_control)


def read(runs: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    """Audits in a few lines: every trial and control of each."""
    audits = [read_audit(run) for run in runs]
    labels = [f"{model_name(audit)}, {audit.book_name}" for audit in audits]
    first = audits[0]
    headlines = [headline(audit) for audit in audits]
    sentences = [sentence for audit in audits for sentence in spread_sentences(audit)]
    sentences += [control_sentence(found) for audit in audits if (found := audit.findings["controls"])]
    return Content(
        kind="audit",
        label=listed(labels),
        headline=f"{listed(headlines, most=len(headlines))}.",
        date=str(first.manifest["written_at"])[:10],
        facts=tuple(facts(first)),
        notices=tuple(dict.fromkeys(notice for audit in audits for notice in notices(audit))),
        tables=(_trials(audits, labels), *_controls(audits)),
        sentences=tuple(sentences),
        draw=lambda: _compared(audits, labels),
        manifests=tuple((audit.path.name, json.dumps(audit.manifest, indent=2)) for audit in audits),
    )


def show(run: Path) -> Iterable[str]:
    return terminal_lines(read_audit(run))


def write(runs: Sequence[Path], out: Path) -> Written:
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
    recalls = [_recall_of(label, audit.best) for audit, label in zip(audits, labels, strict=True)]
    if any(one.matched for one in recalls):
        yield Drawing("nv-recall", "nv-recall of the best trial of each audit.", recall_bars(recalls))


SECTION = Section(read, show, write)
