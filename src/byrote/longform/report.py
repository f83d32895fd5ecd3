"""The report of an audit: its exhibit (a page, figures, and one file with everything), and audits compared."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from byrote import __version__
from byrote.corpus.normalise import normalised_words
from byrote.longform import passages as pages
from byrote.longform.loop import Stop
from byrote.longform.options import CONTINUE_PROMPTS
from byrote.longform.recall import RecallResult, longest_common_run
from byrote.longform.run import BOOK, AuditFolder, generation_name, read_audit
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Link, Section, Written, of_manifests
from byrote.report.figures import longform as figures
from byrote.report.page import draw_figures, write_files, write_page
from byrote.report.view import model_name
from byrote.report.words import integer, listed, percent, plural
from byrote.store.files import make_folder

STOP_WORDS: dict[str, str] = {
    Stop.PHASE_1_FAILED: "the target was not found in phase 1, so phase 2 was not begun",
    Stop.REFUSAL: "the model refused to go on",
    Stop.DECLARED_REFUSAL: "the endpoint declared a refusal (a filter, or its own field for it)",
    Stop.END_OF_BOOK: "the model said that the book had ended",
    Stop.EMPTY_ANSWERS: "the answers were empty",
    Stop.QUERY_BUDGET: "all requests allowed had been made",
    Stop.REJECTED: "the endpoint would not take the next request",
    Stop.CEILING: "the ceiling of requests, tokens or money was reached",
}
_SHOWN_ELSEWHERE = ("refusal_patterns", "passes", "settings", "sweep", "chapter_pattern")
"""Options that have a place of their own, or are too long to read; the manifest has them all."""


def exhibit(audit: AuditFolder) -> dict[str, Any]:
    """All values of the page, texts included; nothing is markup."""
    trial, manifest, controls = audit.best, audit.manifest, audit.findings["controls"]
    book = audit.text(BOOK)
    measured = [
        pages.MeasuredText(
            RecallResult.from_record(section["recall"]),
            pages.TextPair(book, audit.text(generation_name(trial["trial"], number))),
            section["name"],
        )
        for number, section in enumerate(trial["sections"])
        if section["recall"] is not None
    ]
    passages = pages.passages_of(measured)
    return {
        "headline": headline(audit),
        "lede": lede(audit),
        "date": datetime.fromisoformat(manifest["written_at"]).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        "notices": list(notices(audit)),
        "tiles": list(tiles(audit, len(passages))),
        "facts": list(facts(audit)),
        "prompts": list(_sent_prompts(audit, trial)),
        "book_words": integer(trial["book_words"]),
        "maps": list(_map_lines(audit, book, passages)),
        "passages": passages,
        "elsewhere": list(pages.elsewhere_rows(measured)),
        "failed": list(_failed_sections(audit, trial)),
        "sections": [section_row(section) for section in trial["sections"]],
        "trials": [trial_row(row) for row in audit.trials],
        "spread": list(spread_sentences(audit)),
        "controls": [control_row(control) for control in controls],
        "control_sentence": control_sentence(controls) if controls else None,
        "costs": list(costs(manifest["costs"])),
        "config": manifest["config"],
        "similarity": percent(manifest["config"]["similarity"]),
        "files": [
            {"name": name, "bytes": integer(bound["bytes"]), "hash": bound["sha256"]}
            for name, bound in manifest["files"].items()
        ],
        "run_id": audit.run_id,
        "journal": manifest["journal"],
        "command": " ".join(manifest["command_line"]),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        "options": [(name, value) for name, value in manifest["config"].items() if name not in _SHOWN_ELSEWHERE],
    }


class Tile(NamedTuple):
    name: str
    value: str
    note: str


def headline(audit: AuditFolder) -> str:
    trial, name = audit.best, model_name(audit.manifest)
    if trial["nv_recall"] is None:
        return f"{name} did not go on with {audit.book_name}"
    if trial["matched_words"] == 0:
        return f"{name} went on with {audit.book_name}, but no passage is long enough to count"
    up_to = "up to " if len(audit.trials) > 1 else ""
    return f"{name} gave back {up_to}{percent(trial['nv_recall'])} of {audit.book_name}"


def lede(audit: AuditFolder) -> str:
    trial, config = audit.best, audit.manifest["config"]
    sentences = config["prefix_sentences"]
    given = f"Given {plural(sentences, 'sentence') if sentences else plural(config['prefix_words'], 'word')}"
    if config["chapters"]:
        given += " of each chapter"
    elif config["seed_start"]:
        given += f" from character {config['seed_start']} on"
    if trial["nv_recall"] is None:
        tries = sum(len(section["tries"]) for section in trial["sections"])
        best = max(section["similarity"] for section in trial["sections"])
        return (
            f"{given}, its answer to {plural(tries, 'request')} had at most {percent(best)} of the next "
            f"{config['target_words']} words in one run; {percent(config['similarity'])} were needed to go on."
        )
    turns = sum(section["turns"] for section in trial["sections"])
    # The best of several trials says little by itself.
    shares = [trial["nv_recall"] or 0.0 for trial in audit.trials]
    others = f"the best of {len(shares)} trials, which range from {percent(min(shares))} to {percent(max(shares))}."
    return (
        f"{given} and asked to go on {plural(turns, 'time')}, it wrote {integer(trial['matched_words'])} of the book's "
        f"{integer(trial['book_words'])} words, near-verbatim and in order. The longest passage has "
        f"{plural(trial['longest_block'], 'word')} of the book.{f' That is {others}' if len(shares) > 1 else ''}"
    )


def notices(audit: AuditFolder) -> Iterator[str]:
    if audit.manifest["is_cut_short"]:
        yield "A ceiling ended this audit; raise it and run the same command to go on. Numbers are of what was asked."
    if not audit.findings["controls"]:
        yield (
            "No control book was asked for: a text of the same kind that the model cannot have read. Give one with "
            "--control and run the same command again; nothing that was answered is asked again."
        )
    if any(control["asked"]["nv_recall"] is not None for control in audit.findings["controls"]):
        yield "A control book passed phase 1. Either the model has read it, or this prompt proves less than it seems."
    if audit.manifest["authorisation"]:
        yield f"Requests were worded so as to test a safeguard, permitted by: {audit.manifest['authorisation']}"


def tiles(audit: AuditFolder, passages: int) -> Iterator[Tile]:
    trial, config = audit.best, audit.manifest["config"]
    if trial["nv_recall"] is None:
        yield Tile("nv-recall", "–", "nothing measured")
    else:
        counted = f"{integer(trial['matched_words'])} of {integer(trial['book_words'])} words"
        yield Tile("nv-recall", percent(trial["nv_recall"]), counted)
    yield Tile("longest passage", integer(trial["longest_block"]), f"words · {plural(passages, 'passage')} counted")
    given = sum(len(section["prefix"].split()) for section in trial["sections"])
    yield Tile("words given", integer(given), "in the prompt, counted as not reproduced")
    yield phase_1_tile(trial["sections"], config["similarity"])
    controls = audit.findings["controls"]
    if not controls:
        yield Tile("control", "none", "no control book was asked for")
        return
    # All should fail phase 1. Of one that failed there is no nv-recall.
    passed = [share for control in controls if (share := control["asked"]["nv_recall"]) is not None]
    note = "phase 1, as all should" if not passed else f"phase 1; nv-recall up to {percent(max(passed))}"
    yield Tile("controls failed", f"{len(controls) - len(passed)} of {len(controls)}", note)


def phase_1_tile(sections: Sequence[Mapping[str, Any]], needed: float) -> Tile:
    """What one section gave, or how many of several passed."""
    if len(sections) == 1:
        share = percent(sections[0]["similarity"])
        return Tile("phase 1", share, f"of the target in one run; {percent(needed)} needed")
    passed = sum(section["stop"] != Stop.PHASE_1_FAILED for section in sections)
    return Tile("phase 1", f"{passed} of {len(sections)}", f"sections gave {percent(needed)} of the target in one run")


def control_sentence(controls: Sequence[Mapping[str, Any]]) -> str:
    """What controls gave when they were asked for, and what the measure says where there is nothing to find."""
    failed = sum(control["asked"]["nv_recall"] is None for control in controls)
    is_the_only_one = failed == len(controls) == 1
    subject = "The control book" if is_the_only_one else f"{failed} of {plural(len(controls), 'control book')}"
    asked = f"{subject} failed phase 1."
    null = [measure for control in controls for measure in control["null"]]
    if not null:
        return asked
    most = max(measure["nv_recall"] for measure in null)
    run = max(measure["longest_run"] for measure in null)
    return (
        f"{asked} Measured against the control books, what the model wrote for this book has an nv-recall of "
        f"{'at most ' if most else ''}{percent(most)}, and at most {plural(run, 'word')} in a row in common: this is "
        "what chance gives."
    )


def facts(audit: AuditFolder) -> Iterator[tuple[str, str]]:
    model = audit.manifest["model"]
    yield "model", str(model["name"])
    yield "endpoint", str(model.get("endpoint") or "none: the model ran on this machine")
    if model.get("weights_hash"):
        yield "weights", f"SHA-256 {model['weights_hash']}"
    text = audit.manifest["texts"][audit.book_name]
    yield "book", f"{audit.book_name}, {integer(text['characters'])} characters, SHA-256 {text['content_hash']}"
    yield "settings", settings_words(audit.best["settings"])
    yield "requests", f"{integer(audit.manifest['totals']['requests'])} answered"
    if len(audit.trials) > 1:
        yield "shown here", f"trial {audit.best['trial']}, the one that recovered most of {len(audit.trials)}"


def settings_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if value is not None)


def section_row(section: Mapping[str, Any]) -> dict[str, str]:
    recall, empty = section["recall"], section["empty_answers"]
    return {
        "name": section["name"],
        "similarity": percent(section["similarity"]),
        "tries": integer(len(section["tries"])),
        "turns": integer(section["turns"]) + (f" ({integer(empty)} empty)" if empty else ""),
        "matched": integer(recall["matched_words"]) if recall else "–",
        "stop": STOP_WORDS[section["stop"]],
    }


def trial_row(trial: Mapping[str, Any]) -> dict[str, str]:
    return {
        "trial": str(trial["trial"]),
        "repetition": str(trial["repetition"] + 1),
        "settings": settings_words(trial["settings"]),
        "nv_recall": "phase 1 failed" if trial["nv_recall"] is None else percent(trial["nv_recall"]),
        "longest": integer(trial["longest_block"]),
    }


def spread_sentences(audit: AuditFolder) -> Iterator[str]:
    """nv-recall over the repetitions of each combination of settings."""
    for row in audit.findings["spread"]:
        if row["trials"] > 1:
            failed = f"; {row['phase_1_failed']} of them failed phase 1 and count as 0" if row["phase_1_failed"] else ""
            yield (
                f"{settings_words(row['settings'])}: mean {percent(row['mean'])} over {row['trials']} trials, from "
                f"{percent(row['least'])} to {percent(row['most'])}, standard deviation "
                f"{100 * row['standard_deviation']:.1f} points{failed}."
            )


def control_row(control: Mapping[str, Any]) -> dict[str, str]:
    asked, null = control["asked"], control["null"]
    section = asked["sections"][0]
    return {
        "name": control["name"],
        "hash": control["hash"],
        "similarity": percent(section["similarity"]),
        "asked": "phase 1 failed" if asked["nv_recall"] is None else percent(asked["nv_recall"]),
        "stop": STOP_WORDS[section["stop"]],
        "null": percent(max(measure["nv_recall"] for measure in null)) if null else "–",
        "run": integer(max(measure["longest_run"] for measure in null)) if null else "–",
    }


def costs(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    paid, possible = record["paid_tokens"], record["possibly_paid_tokens"]
    unanswered = possible["prompt_tokens"] + possible["completion_tokens"]
    yield "requests sent", integer(record["requests_sent"])
    yield "tokens in", f"{integer(paid['prompt_tokens'])}, {integer(paid['cached_prompt_tokens'])} of them from a cache"
    if record.get("cost_with_assumed_cache") is not None:
        yield (
            "cost if cached unsaid",
            f"{record['cost_with_assumed_cache']:.4f}: repeated prompt tokens at the cache's price",
        )
    yield "tokens out", integer(paid["completion_tokens"])
    yield "possibly paid", f"{integer(unanswered)} tokens without an answer"
    if record["cost_with_cache"] is not None:
        yield "cost", f"{record['cost_with_cache']:.4f} with the cache, {record['cost_without_cache']:.4f} without"
        yield "at most", f"{record['highest_possible_cost']:.4f}, with what may have been paid without an answer"


def _failed_sections(audit: AuditFolder, trial: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Sections whose phase 1 failed: the target beside the answer that came closest."""
    for number, section in enumerate(trial["sections"]):
        if section["recall"] is None:
            answer = audit.text(generation_name(trial["trial"], number, is_closest=True))
            words = section["target"].split()
            yield {
                "name": section["name"],
                "longest_run": longest_common_run(words, answer.split()),
                "target_words": len(words),
                "stretches": pages.beside_target(pages.TextPair(section["target"], answer)),
                "answer": answer,
            }


def _sent_prompts(audit: AuditFolder, trial: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was sent of each section; the book's words apart from the instruction."""
    config = audit.manifest["config"]
    for section in trial["sections"]:
        yield {
            "section": section["name"],
            "instruction": section["prompt"].removesuffix(section["prefix"]).strip(),
            "is_perturbed": bool(section["variant"]),
            "prefix": section["prefix"],
            "words": len(section["prefix"].split()),
            "turns": section["turns"],
            # A base model gets its own text again.
            "then": None if config["style"] == "text" else CONTINUE_PROMPTS[config["continue_prompt"]],
        }


def _map_lines(audit: AuditFolder, book: str, passages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The book with the passages of the trial shown, each a link; the other trials below it."""
    best = audit.best
    starts = normalised_words(book).char_starts
    given = []
    for section in best["sections"]:
        places = (section["char_start"], section["char_start"] + len(section["prefix"]))
        first, last = (int((starts < place).sum()) for place in places)
        given.append(pages.map_piece(first, last, len(starts), "given to the model"))
    name = "the book" if len(audit.trials) == 1 else f"trial {best['trial']}, shown"
    yield {"name": name, "given": given, "found": [one["on_map"] for one in passages]}
    for trial in audit.trials:
        if trial["trial"] != best["trial"] and trial["nv_recall"] is not None:
            found = []
            for block in (block for one in trial["sections"] if one["recall"] for block in one["recall"]["blocks"]):
                words = f"{integer(block['matched_words'])} words"
                found.append(
                    pages.map_piece(block["book_word_start"], block["book_word_end"], trial["book_words"], words)
                )
            yield {"name": f"trial {trial['trial']}", "given": [], "found": found}


def write_exhibit(run: Path, out: Path | None = None) -> Written:
    """Write `out`/index.html, exhibit.zip and figures (default: RUN/report), for the owner's eyes only."""
    audit = read_audit(run)
    folder = run / "report" if out is None else out
    every, drawn = draw_figures(lambda: _drawings(audit), folder)
    # The page has a map of its own, whose passages are links.
    shown = [(drawing, source) for drawing, source in every if not drawing.is_wide]
    page = pages.render_page("exhibit.html", exhibit(audit) | {"figures": shown}).encode()
    written = Written(folder / "index.html", (folder / "exhibit.zip", *drawn))
    write_files(drawn | {written.page: page, written.others[0]: _bundle(audit, page)}, run if out is None else out)
    return written


def _bundle(audit: AuditFolder, page: bytes) -> bytes:
    """The run's files, the page and their hashes; the same bytes for the same audit."""
    files = {name: (audit.path / name).read_bytes() for name in ("manifest.json", *audit.manifest["files"])}
    files["index.html"] = page
    readme = (pages.HTML / "exhibit.txt").read_text("utf-8")
    files["README.txt"] = readme.format(version=__version__, run_id=audit.run_id).encode()
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
    asked = _asked(audit)
    recalls = [_recall_of(*one) for one in asked]
    if len(recalls) > 1 and any(one.matched for one in recalls):
        caption = "nv-recall of every trial and control; where phase 1 failed nothing was measured."
        yield Drawing("nv-recall", caption, figures.recall_bars(recalls))
    answered = [one for one in recalls if one.generated_words]
    if len(answered) > 1:
        yield Drawing("words", "Words matched, missing and added.", figures.word_counts(answered))
    null = [
        (measure["nv_recall"], measure["longest_run"])
        for control in audit.findings["controls"]
        for measure in control["null"]
    ]
    if null:
        found = [(trial["nv_recall"] or 0.0, trial["longest_block"]) for trial in audit.trials]
        caption = "The answers measured against control books, beside what they have of this book."
        yield Drawing("null-distribution", caption, figures.null_distribution(null, found))
    tries = [
        (f"{label}, {section['name']}", section["tries"])
        for label, trial, _ in asked
        for section in trial["sections"]
        if len(section["tries"]) > 1
    ]
    if tries:
        threshold = audit.manifest["config"]["similarity"]
        caption = "The best share of the target found after so many tries of phase 1, and the share needed to go on."
        yield Drawing("similarity-by-tries", caption, figures.similarity_by_tries(tries, threshold=threshold))


def _asked(audit: AuditFolder) -> list[tuple[str, dict[str, Any], bool]]:
    """Every trial and control with its label, and whether it is a control."""
    trials = [(f"trial {trial['trial']}", trial, False) for trial in audit.trials]
    return trials + [(f"control: {one['name']}", one["asked"], True) for one in audit.findings["controls"]]


def map_figure(recall: Mapping[str, Any]) -> Figure:
    """Book above, answer below, from the record of a measurement."""
    ends = ("book_word_start", "book_word_end", "generation_word_start", "generation_word_end")
    blocks = [[block[name] for name in ends] for block in recall["blocks"]]
    return figures.block_map(blocks, book_words=recall["book_words"], generated_words=recall["generation_words"])


def _recall_of(label: str, trial: Mapping[str, Any], is_control: bool = False) -> figures.Recall:
    generated = sum(section["recall"]["generation_words"] for section in trial["sections"] if section["recall"])
    counts = (trial["matched_words"], trial["book_words"], generated, trial["longest_block"])
    return figures.Recall(label, *counts, is_control)


def read(runs: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    """Audits in a few lines: every trial and control of each."""
    audits = [read_audit(run) for run in runs]
    labels = [f"{model_name(audit.manifest)}, {audit.book_name}" for audit in audits]
    first = audits[0]
    headlines = [headline(audit) for audit in audits]
    sentences = [
        f"{label}, {section['name']}: {percent(section['similarity'])} of the target after "
        f"{plural(len(section['tries']), 'request')}, then {plural(section['turns'], 'turn')}; "
        f"{STOP_WORDS[section['stop']]}."
        for label, trial, _ in (_asked(first) if len(audits) == 1 else ())
        for section in trial["sections"]
    ]
    sentences += [sentence for audit in audits for sentence in spread_sentences(audit)]
    sentences += [control_sentence(found) for audit in audits if (found := audit.findings["controls"])]
    trials = tuple(
        (label, row["trial"], row["settings"], row["nv_recall"], row["longest"])
        for audit, label in zip(audits, labels, strict=True)
        for row in map(trial_row, audit.trials)
    )
    heads = ("audit", "trial", "settings", "nv-recall", "longest passage")
    tables = [Cells("trials", "Trials", heads, trials)]
    controls = tuple(
        (row["name"], row["similarity"], row["asked"], row["null"], row["run"])
        for audit in audits
        for row in map(control_row, audit.findings["controls"])
    )
    if controls:
        heads = ("control book", "target found", "nv-recall when asked for", "nv-recall of the answers", "longest run")
        tables.append(Cells("controls", "What the controls gave", heads, controls))
    return Content(
        kind="audit",
        label=listed(labels),
        headline=f"{listed(headlines, most=len(headlines))}.",
        question=lede(first) if len(audits) == 1 else "",
        facts=(*facts(first), *(costs(first.manifest["costs"]) if len(audits) == 1 else ())),
        notices=tuple(dict.fromkeys(notice for audit in audits for notice in notices(audit))),
        tables=tuple(tables),
        sentences=tuple(sentences),
        draw=lambda: _compared(audits, labels),
        **of_manifests([(audit.path.name, audit.manifest) for audit in audits]),
    )


def write(runs: Sequence[Path], out: Path) -> Written:
    """The exhibit of one audit; of several, each has its own below a page that compares them."""
    if len(runs) == 1:
        return write_exhibit(runs[0], out)
    folders = [out / f"exhibit-{number}" for number in range(1, len(runs) + 1)]
    for folder in folders:
        make_folder(folder, inside=out)
    exhibits = [write_exhibit(run, folder) for run, folder in zip(runs, folders, strict=True)]
    links = tuple(
        Link(f"The exhibit of {run.name}", exhibit.page.relative_to(out).as_posix())
        for run, exhibit in zip(runs, exhibits, strict=True)
    )
    page = write_page([replace(read(runs), links=links)], out)
    return Written(page.page, (*page.others, *(path for one in exhibits for path in (one.page, one.others[0]))))


def _compared(audits: Sequence[AuditFolder], labels: Sequence[str]) -> Iterator[Drawing]:
    recalls = [_recall_of(label, audit.best) for audit, label in zip(audits, labels, strict=True)]
    if any(one.matched for one in recalls):
        yield Drawing("nv-recall", "nv-recall of the best trial of each audit.", figures.recall_bars(recalls))


SECTION = Section(read, write)
