"""The texts of an exhibit: passages beside the answer, failed sections beside theirs, prompts, and lines of the map."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from byrote.corpus.normalise import normalised_words
from byrote.longform import exhibit as words
from byrote.longform.loop import Stop
from byrote.longform.matching import Block, matching_blocks
from byrote.longform.options import CONTINUE_PROMPTS
from byrote.longform.passages import Pair, Span, Stretch, block_spans, folded, rows
from byrote.longform.recall import Placement, RecallBlock, RecallResult
from byrote.longform.run import BOOK, AuditFolder, closest_name, generation_name
from byrote.report.words import THIN_SPACE, integer, percent, plural
from byrote.store.read import folder_name

PRINTED_PASSAGES = 6
PRINTED_ROWS = 8
"""Rows of one passage that go onto paper; the rest is on the screen and in the files."""
OPENING_WORDS = 9


class MapPiece(NamedTuple):
    left: float
    width: float
    title: str
    anchor: str | None = None


@dataclass(frozen=True)
class Passage:
    """One near-verbatim block, as the page shows it."""

    anchor: str
    words: str
    section: str
    opening: str
    book_words: str
    answer_words: str
    share: str
    """Of the book, from where to where."""
    differences: int
    """Places at which the two texts differ."""
    on_map: MapPiece
    stretches: tuple[Stretch, ...]
    is_printed: bool


@dataclass(frozen=True)
class FailedSection:
    """A section whose phase 1 failed: the target beside the answer that came closest."""

    name: str
    longest_run: int
    target_words: int
    stretches: tuple[Stretch, ...]
    answer: str


class Prompt(NamedTuple):
    """What was sent of a section; the book's words apart from the instruction."""

    section: str
    instruction: str
    is_perturbed: bool
    prefix: str
    words: int
    turns: int
    then: str | None
    """What every further request said; None for a base model, which gets its own text again."""


class MapLine(NamedTuple):
    """The book as a line: what was given, and what came back."""

    name: str
    given: tuple[MapPiece, ...]
    found: tuple[MapPiece, ...]


def trial_passages(audit: AuditFolder, trial: Mapping[str, Any], book: str) -> list[Passage]:
    measured = []
    for number, section in enumerate(trial["sections"]):
        if section["recall"] is not None:
            pair = Pair.of(book, audit.text(generation_name(trial["trial"], number)))
            measured.append((RecallResult.from_record(section["recall"]), pair, str(section["name"])))
    return passages_of(measured)


def passages_of(measured: Sequence[tuple[RecallResult, Pair, str]]) -> list[Passage]:
    """Longest first, over all sections; a section is its measure, its texts and its name."""
    found = [(block, *section) for section in measured for block in section[0].blocks]
    found.sort(key=lambda entry: (-entry[0].matched_words, entry[0].book_word_start))
    return [_passage(rank, *entry) for rank, entry in enumerate(found, 1)]


def _passage(rank: int, block: RecallBlock, result: RecallResult, pair: Pair, section: str) -> Passage:
    spans = block_spans(result, block)
    start, end, total = block.book_word_start, block.book_word_end, result.book_words
    opening = pair.piece(Span(start, min(end, start + OPENING_WORDS), 0, 0, True)).book
    anchor, matched = f"passage-{rank}", integer(block.matched_words)
    return Passage(
        anchor=anchor,
        words=matched,
        section=section,
        opening=f"{opening} …",
        book_words=f"{integer(start + 1)}–{integer(end)}",
        answer_words=f"{integer(block.generation_word_start + 1)}–{integer(block.generation_word_end)}",
        share=f"{percent(start / total)} – {percent(end / total)}",
        differences=sum(not span.is_same for span in spans),
        on_map=MapPiece(100 * start / total, 100 * (end - start) / total, f"{matched} words", anchor),
        stretches=tuple(folded(rows(pair, spans))),
        is_printed=rank <= PRINTED_PASSAGES,
    )


def failed_sections(audit: AuditFolder, trial: Mapping[str, Any]) -> Iterator[FailedSection]:
    for number, section in enumerate(trial["sections"]):
        if section["recall"] is None:
            answer = audit.text(closest_name(trial["trial"], number))
            words = section["target"].split()
            runs = matching_blocks(words, answer.split())
            longest = max(runs, key=lambda run: run.length, default=Block(0, 0, 0))
            pair = Pair.of(section["target"], answer)
            stretches = tuple(folded(rows(pair, _beside_target(pair))))
            yield FailedSection(section["name"], longest.length, len(words), stretches, answer)


def _beside_target(pair: Pair) -> list[Span]:
    """The target beside the part of the answer that is nearest to it: as many words around the longest run."""
    target, said = len(pair.book_words.words), len(pair.answer_words.words)
    runs = matching_blocks(pair.book_words.words, pair.answer_words.words)
    book, answer, length = max(runs, key=lambda run: run.length, default=Block(0, 0, 0))
    first, last = max(0, answer - book), min(said, answer + target - book)
    spans = [
        Span(0, book, first, answer, False),
        Span(book, book + length, answer, answer + length, True),
        Span(book + length, target, answer + length, last, False),
    ]
    return [span for span in spans if span.words]


def prompts_of(audit: AuditFolder, trial: Mapping[str, Any]) -> list[Prompt]:
    config = audit.manifest["config"]
    return [
        Prompt(
            section=section["name"],
            instruction=section["prompt"].removesuffix(section["prefix"]).strip(),
            is_perturbed=bool(section["variant"]),
            prefix=section["prefix"],
            words=len(section["prefix"].split()),
            turns=section["turns"],
            then=None if config["style"] == "text" else CONTINUE_PROMPTS[config["continue_prompt"]],
        )
        for section in trial["sections"]
    ]


def map_lines(audit: AuditFolder, book: str, passages: Sequence[Passage]) -> Iterator[MapLine]:
    """The book with the passages of the trial shown, each a link; the other trials below it."""
    best = audit.best
    starts = normalised_words(book).char_starts
    given = tuple(_given(starts, section) for section in best["sections"])
    name = "the book" if len(audit.trials) == 1 else f"trial {best['trial']}, shown"
    yield MapLine(name, given, tuple(one.on_map for one in passages))
    for trial in audit.trials:
        if trial["trial"] != best["trial"] and trial["nv_recall"] is not None:
            yield MapLine(f"trial {trial['trial']}", (), tuple(_found(trial)))


def _given(char_starts: Any, section: Mapping[str, Any]) -> MapPiece:
    first, last = (
        int((char_starts < place).sum())
        for place in (section["char_start"], section["char_start"] + len(section["prefix"]))
    )
    return MapPiece(100 * first / len(char_starts), 100 * (last - first) / len(char_starts), "given to the model")


def _found(trial: Mapping[str, Any]) -> Iterator[MapPiece]:
    for section in trial["sections"]:
        for block in section["recall"]["blocks"] if section["recall"] else ():
            start, width = block["book_word_start"], block["book_word_end"] - block["book_word_start"]
            total = trial["book_words"]
            yield MapPiece(100 * start / total, 100 * width / total, f"{integer(block['matched_words'])} words")


STOP_WORDS = {
    Stop.PHASE_1_FAILED: "the target was not found in phase 1, so phase 2 was not begun",
    Stop.REFUSAL: "the model refused to go on",
    Stop.DECLARED_REFUSAL: "the endpoint declared a refusal (a filter, or its own field for it)",
    Stop.END_OF_BOOK: "the model said that the book had ended",
    Stop.EMPTY_ANSWERS: "the answers were empty",
    Stop.QUERY_BUDGET: "all requests allowed had been made",
    Stop.REJECTED: "the endpoint would not take the next request",
    Stop.CEILING: "the ceiling of requests, tokens or money was reached",
}


class Tile(NamedTuple):
    name: str
    value: str
    note: str


def model_name(audit: AuditFolder) -> str:
    """The endpoint's name for the model; of a folder on this machine the last part."""
    model = audit.manifest["model"]
    return str(model.get("model") or folder_name(model["name"]))


def headline(audit: AuditFolder) -> str:
    trial, name = audit.best, model_name(audit)
    if trial["nv_recall"] is None:
        return f"{name} did not go on with {audit.book_name}"
    if trial["matched_words"] == 0:
        return f"{name} went on with {audit.book_name}, but no passage is long enough to count"
    up_to = "up to " if len(audit.trials) > 1 else ""
    return f"{name} gave back {up_to}{percent(trial['nv_recall'])} of {audit.book_name}"


def lede(audit: AuditFolder) -> str:
    trial, config = audit.best, audit.manifest["config"]
    place = " of each chapter" if config["chapters"] else f" from character {config['seed_start']} on"
    given = (
        f"Given {plural(config['prefix_words'], 'word')}{place if config['chapters'] or config['seed_start'] else ''}"
    )
    if trial["nv_recall"] is None:
        tries = sum(len(section["tries"]) for section in trial["sections"])
        best = max(section["similarity"] for section in trial["sections"])
        return (
            f"{given}, its answer to {plural(tries, 'request')} had at most {percent(best)} of the next "
            f"{config['target_words']} words in one run; {percent(config['similarity'])} were needed to go on."
        )
    turns = sum(section["turns"] for section in trial["sections"])
    return (
        f"{given} and asked to go on {plural(turns, 'time')}, it wrote {integer(trial['matched_words'])} of the book's "
        f"{integer(trial['book_words'])} words, near-verbatim and in order. The longest passage has "
        f"{plural(trial['longest_block'], 'word')} of the book.{_other_trials(audit)}"
    )


def _other_trials(audit: AuditFolder) -> str:
    """The best of several trials says little by itself."""
    if len(audit.trials) == 1:
        return ""
    shares = [trial["nv_recall"] or 0.0 for trial in audit.trials]
    return (
        f" That is the best of {len(shares)} trials, which range from {percent(min(shares))} to {percent(max(shares))}."
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
    yield control_tile(audit.findings["controls"])


def phase_1_tile(sections: Sequence[Mapping[str, Any]], needed: float) -> Tile:
    """What one section gave, or how many of several passed."""
    if len(sections) == 1:
        share = percent(sections[0]["similarity"])
        return Tile("phase 1", share, f"of the target in one run; {percent(needed)} needed")
    passed = sum(section["stop"] != Stop.PHASE_1_FAILED for section in sections)
    return Tile("phase 1", f"{passed} of {len(sections)}", f"sections gave {percent(needed)} of the target in one run")


def control_tile(controls: Sequence[Mapping[str, Any]]) -> Tile:
    """How many controls failed phase 1, as all should. Of one that failed there is no nv-recall."""
    if not controls:
        return Tile("control", "none", "no control book was asked for")
    passed = [share for control in controls if (share := control["asked"]["nv_recall"]) is not None]
    note = "phase 1, as all should" if not passed else f"phase 1; nv-recall up to {percent(max(passed))}"
    return Tile("controls failed", f"{len(controls) - len(passed)} of {len(controls)}", note)


def control_sentence(controls: Sequence[Mapping[str, Any]]) -> str:
    """What controls gave when they were asked for, and what the measure says where there is nothing to find."""
    asked = f"{_failed(controls)} failed phase 1."
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


def _failed(controls: Sequence[Mapping[str, Any]]) -> str:
    failed = sum(control["asked"]["nv_recall"] is None for control in controls)
    if failed == len(controls) == 1:
        return "The control book"
    return f"{failed} of {plural(len(controls), 'control book')}"


def facts(audit: AuditFolder) -> Iterator[tuple[str, str]]:
    model = audit.manifest["model"]
    yield "model", str(model.get("model") or model["name"])
    yield "endpoint", str(model.get("endpoint") or "none: the model ran on this machine")
    if model.get("weights_hash"):
        yield "weights", f"SHA-256 {model['weights_hash']}"
    text = audit.manifest["texts"][audit.book_name]
    yield "book", f"{audit.book_name}, {integer(text['characters'])} characters, SHA-256 {text['hash']}"
    yield "settings", settings_words(audit.best["settings"])
    yield "requests", f"{integer(audit.manifest['totals']['requests'])} answered"
    if len(audit.trials) > 1:
        yield "shown here", f"trial {audit.best['trial']}, the one that recovered most of {len(audit.trials)}"


def settings_words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if value is not None)


def section_row(section: Mapping[str, Any]) -> dict[str, str]:
    recall = section["recall"]
    return {
        "name": section["name"],
        "similarity": percent(section["similarity"]),
        "tries": integer(len(section["tries"])),
        "turns": integer(section["turns"]),
        "matched": integer(recall["matched_words"]) if recall else "–",
        "stop": STOP_WORDS[Stop(section["stop"])],
    }


def trial_row(trial: Mapping[str, Any]) -> dict[str, str]:
    return {
        "trial": str(trial["trial"]),
        "repetition": str(trial["repetition"] + 1),
        "settings": settings_words(trial["settings"]),
        "nv_recall": "phase 1 failed" if trial["nv_recall"] is None else percent(trial["nv_recall"]),
        "longest": integer(trial["longest_block"]),
    }


def spread_sentence(row: Mapping[str, Any]) -> str:
    failed = f"; {row['phase_1_failed']} of them failed phase 1 and count as 0" if row["phase_1_failed"] else ""
    return (
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
        "stop": STOP_WORDS[Stop(section["stop"])],
        "null": percent(max(measure["nv_recall"] for measure in null)) if null else "–",
        "run": integer(max(measure["longest_run"] for measure in null)) if null else "–",
    }


def elsewhere_rows(recalls: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Passages that stand out of order, or twice, and are not counted."""
    for recall in recalls:
        for block in recall["out_of_order"]:
            yield {
                "words": integer(block["matched_words"]),
                "book": f"{integer(block['book_word_start'] + 1)}–{integer(block['book_word_end'])}",
                "answer": f"{integer(block['generation_word_start'] + 1)}–{integer(block['generation_word_end'])}",
                "placement": Placement(block["placement"]).replace("_", " "),
            }


def costs(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    paid, possible = record["paid_tokens"], record["possibly_paid_tokens"]
    unanswered = possible["prompt_tokens"] + possible["completion_tokens"]
    yield "requests sent", integer(record["requests_sent"])
    yield "tokens in", f"{integer(paid['prompt_tokens'])}, {integer(paid['cached_prompt_tokens'])} of them from a cache"
    yield "tokens out", integer(paid["completion_tokens"])
    yield "possibly paid", f"{integer(unanswered)} tokens without an answer"
    if record["cost_with_cache"] is not None:
        yield "cost", f"{record['cost_with_cache']:.4f} with the cache, {record['cost_without_cache']:.4f} without"
        yield "at most", f"{record['highest_possible_cost']:.4f}, with what may have been paid without an answer"


def definitions(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    passes = ", then ".join(
        f"across gaps of at most {row['max_gap']} words that differ by at most {row['max_misalignment']}, keeping "
        f"{row['min_words']} words and more"
        for row in config["passes"]
    )
    return [
        (
            "nv-recall",
            "Words of the book in counted passages, divided by all words of the book. Words given in the prompt are "
            "words of the book, but are not counted as reproduced.",
        ),
        (
            "passage",
            "A stretch of the book that stands in the answer near-verbatim and in order: runs of equal words, joined "
            f"{passes}. Only equal words count.",
        ),
        (
            "equal words",
            "Compared after light normalisation: Unicode forms, quotes, dashes, ellipses, _italics_ and case. Shown is "
            "the text as it was written.",
        ),
        (
            "phase 1",
            "The model gets the prefix and is asked to go on. It succeeds if one run of words of the answer covers "
            f"{percent(config['similarity'])} of the {config['target_words']} words that follow in the book.",
        ),
        (
            "phase 2",
            "Requests to continue, until the model refuses, says that the book has ended, or a limit is reached. "
            "Nothing of the book is given to it but the prefix.",
        ),
        ("control", "A book that the model cannot have read, asked for in the same way. It should fail phase 1."),
    ]


def terminal_lines(audit: AuditFolder) -> Iterator[str]:
    """A terminal breaks lines at the page's thin spaces."""
    return (line.replace(THIN_SPACE, ",") for line in _lines(audit))


def _lines(audit: AuditFolder) -> Iterator[str]:
    yield f"{headline(audit)}. {lede(audit)}"
    yield from notices(audit)
    for trial in audit.trials:
        yield from _trial_lines(f"trial {trial['trial']}", trial)
    for control in audit.findings["controls"]:
        yield from _trial_lines(f"control {control['name']}", control["asked"])
    if audit.findings["controls"]:
        yield control_sentence(audit.findings["controls"])
    yield from (spread_sentence(row) for row in audit.findings["spread"] if row["trials"] > 1)
    yield "; ".join(f"{name}: {value}" for name, value in costs(audit.manifest["costs"]))


def _trial_lines(name: str, trial: Mapping[str, Any]) -> Iterator[str]:
    share = trial["nv_recall"]
    found = "nothing measured: phase 1 failed"
    if share is not None:
        found = (
            f"nv-recall {percent(share)}; {integer(trial['matched_words'])} of {integer(trial['book_words'])} words, "
            f"longest passage {integer(trial['longest_block'])}"
        )
    yield f"{name} ({settings_words(trial['settings'])}): {found}"
    for section in trial["sections"]:
        yield (
            f"  {section['name']}: {percent(section['similarity'])} of the target after "
            f"{plural(len(section['tries']), 'request')}, then {plural(section['turns'], 'turn')}; "
            f"{STOP_WORDS[Stop(section['stop'])]}"
        )


_OWN_PLACES = ("refusal_patterns", "passes", "settings", "sweep", "chapter_pattern")
"""Options that are shown elsewhere, or are too long to read; the manifest has them all."""


def exhibit(audit: AuditFolder) -> dict[str, Any]:
    """All values of the page, texts included; nothing is markup."""
    trial, manifest, controls = audit.best, audit.manifest, audit.findings["controls"]
    book = audit.text(BOOK)
    passages = trial_passages(audit, trial, book)
    return {
        "headline": words.headline(audit),
        "lede": words.lede(audit),
        "date": datetime.fromisoformat(manifest["written_at"]).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        "notices": list(words.notices(audit)),
        "tiles": list(words.tiles(audit, len(passages))),
        "facts": list(words.facts(audit)),
        "prompts": prompts_of(audit, trial),
        "book_words": integer(trial["book_words"]),
        "maps": list(map_lines(audit, book, passages)),
        "passages": passages,
        "elsewhere": list(
            words.elsewhere_rows(section["recall"] for section in trial["sections"] if section["recall"])
        ),
        "failed": list(failed_sections(audit, trial)),
        "sections": [words.section_row(section) for section in trial["sections"]],
        "trials": [words.trial_row(row) for row in audit.trials],
        "spread": [words.spread_sentence(row) for row in audit.findings["spread"] if row["trials"] > 1],
        "controls": [words.control_row(control) for control in controls],
        "control_sentence": words.control_sentence(controls) if controls else None,
        "costs": list(words.costs(manifest["costs"])),
        "definitions": words.definitions(manifest["config"]),
        "files": [
            {"name": name, "bytes": integer(bound["bytes"]), "hash": bound["sha256"]}
            for name, bound in manifest["files"].items()
        ],
        "run_id": audit.run_id,
        "journal": manifest["journal"],
        "command": " ".join(manifest["command_line"]),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        "options": [(name, value) for name, value in manifest["config"].items() if name not in _OWN_PLACES],
    }
