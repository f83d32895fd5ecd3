"""What the exhibit of an audit says: its sentences, numbers and tables, the same in page, terminal and overview."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from byrote.corpus.normalise import normalised_words
from byrote.longform.loop import Stop
from byrote.longform.matching import Block, matching_blocks
from byrote.longform.options import CONTINUE_PROMPTS
from byrote.longform.passages import (
    MapLine,
    MapPiece,
    MeasuredText,
    Passage,
    Span,
    Stretch,
    TextPair,
    elsewhere_rows,
    folded,
    passages_of,
    rows,
)
from byrote.longform.recall import RecallResult
from byrote.longform.run import BOOK, AuditFolder, closest_name, generation_name
from byrote.report.words import THIN_SPACE, integer, percent, plural
from byrote.store.read import folder_name

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
_SHOWN_ELSEWHERE = ("refusal_patterns", "passes", "settings", "sweep", "chapter_pattern")
"""Options that have a place of their own, or are too long to read; the manifest has them all."""


def exhibit(audit: AuditFolder) -> dict[str, Any]:
    """All values of the page, texts included; nothing is markup."""
    trial, manifest, controls = audit.best, audit.manifest, audit.findings["controls"]
    book = audit.text(BOOK)
    measured = [
        MeasuredText(
            RecallResult.from_record(section["recall"]),
            TextPair.of(book, audit.text(generation_name(trial["trial"], number))),
            section["name"],
        )
        for number, section in enumerate(trial["sections"])
        if section["recall"] is not None
    ]
    passages = passages_of(measured)
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
        "elsewhere": list(elsewhere_rows(measured)),
        "failed": list(_failed_sections(audit, trial)),
        "sections": [section_row(section) for section in trial["sections"]],
        "trials": [trial_row(row) for row in audit.trials],
        "spread": list(spread_sentences(audit)),
        "controls": [control_row(control) for control in controls],
        "control_sentence": control_sentence(controls) if controls else None,
        "costs": list(costs(manifest["costs"])),
        "definitions": definitions(manifest["config"]),
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


def terminal_lines(audit: AuditFolder) -> Iterator[str]:
    """A terminal breaks lines at the page's thin spaces, so numbers have commas."""
    return (line.replace(THIN_SPACE, ",") for line in _lines(audit))


def _lines(audit: AuditFolder) -> Iterator[str]:
    controls = audit.findings["controls"]
    yield f"{headline(audit)}. {lede(audit)}"
    yield from notices(audit)
    asked = [(f"trial {trial['trial']}", trial) for trial in audit.trials]
    asked += [(f"control {control['name']}", control["asked"]) for control in controls]
    for name, trial in asked:
        row = trial_row(trial)
        found = "nothing measured: phase 1 failed"
        if trial["nv_recall"] is not None:
            words = f"{integer(trial['matched_words'])} of {integer(trial['book_words'])} words"
            found = f"nv-recall {row['nv_recall']}; {words}, longest passage {row['longest']}"
        yield f"{name} ({row['settings']}): {found}"
        for section in trial["sections"]:
            shown = section_row(section)
            yield (
                f"  {shown['name']}: {shown['similarity']} of the target after "
                f"{plural(len(section['tries']), 'request')}, then {plural(section['turns'], 'turn')}; {shown['stop']}"
            )
    if controls:
        yield control_sentence(controls)
    yield from spread_sentences(audit)
    yield "; ".join(f"{name}: {value}" for name, value in costs(audit.manifest["costs"]))


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
    given = f"Given {plural(config['prefix_words'], 'word')}"
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
        "stop": STOP_WORDS[Stop(section["stop"])],
        "null": percent(max(measure["nv_recall"] for measure in null)) if null else "–",
        "run": integer(max(measure["longest_run"] for measure in null)) if null else "–",
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


@dataclass(frozen=True)
class FailedSection:
    """A section whose phase 1 failed: the target beside the answer that came closest."""

    name: str
    longest_run: int
    target_words: int
    stretches: tuple[Stretch, ...]
    answer: str


def _failed_sections(audit: AuditFolder, trial: Mapping[str, Any]) -> Iterator[FailedSection]:
    for number, section in enumerate(trial["sections"]):
        if section["recall"] is None:
            answer = audit.text(closest_name(trial["trial"], number))
            words = section["target"].split()
            pair = TextPair.of(section["target"], answer)
            stretches = folded(rows(pair, _beside_target(pair)))
            longest_run = _longest_run(words, answer.split()).length
            yield FailedSection(section["name"], longest_run, len(words), stretches, answer)


def _beside_target(pair: TextPair) -> list[Span]:
    """The target beside the part of the answer that is nearest to it: as many words around the longest run."""
    target_words, answer_words = len(pair.book_words.words), len(pair.answer_words.words)
    book, answer, length = _longest_run(pair.book_words.words, pair.answer_words.words)
    first, last = max(0, answer - book), min(answer_words, answer + target_words - book)
    spans = [
        Span(0, book, first, answer, False),
        Span(book, book + length, answer, answer + length, True),
        Span(book + length, target_words, answer + length, last, False),
    ]
    return [span for span in spans if span.words]


def _longest_run(book: Sequence[str], answer: Sequence[str]) -> Block:
    return max(matching_blocks(book, answer), key=lambda run: run.length, default=Block(0, 0, 0))


class SentPrompt(NamedTuple):
    """What was sent of a section; the book's words apart from the instruction."""

    section: str
    instruction: str
    is_perturbed: bool
    prefix: str
    words: int
    turns: int
    then: str | None
    """What every further request said; None for a base model, which gets its own text again."""


def _sent_prompts(audit: AuditFolder, trial: Mapping[str, Any]) -> Iterator[SentPrompt]:
    config = audit.manifest["config"]
    for section in trial["sections"]:
        yield SentPrompt(
            section=section["name"],
            instruction=section["prompt"].removesuffix(section["prefix"]).strip(),
            is_perturbed=bool(section["variant"]),
            prefix=section["prefix"],
            words=len(section["prefix"].split()),
            turns=section["turns"],
            then=None if config["style"] == "text" else CONTINUE_PROMPTS[config["continue_prompt"]],
        )


def _map_lines(audit: AuditFolder, book: str, passages: Sequence[Passage]) -> Iterator[MapLine]:
    """The book with the passages of the trial shown, each a link; the other trials below it."""
    best = audit.best
    starts = normalised_words(book).char_starts
    given = []
    for section in best["sections"]:
        places = (section["char_start"], section["char_start"] + len(section["prefix"]))
        first, last = (int((starts < place).sum()) for place in places)
        given.append(MapPiece.of(first, last, len(starts), "given to the model"))
    name = "the book" if len(audit.trials) == 1 else f"trial {best['trial']}, shown"
    yield MapLine(name, tuple(given), tuple(one.on_map for one in passages))
    for trial in audit.trials:
        if trial["trial"] != best["trial"] and trial["nv_recall"] is not None:
            recalls = [section["recall"] for section in trial["sections"] if section["recall"]]
            found = [
                MapPiece.of(
                    block["book_word_start"],
                    block["book_word_end"],
                    trial["book_words"],
                    f"{integer(block['matched_words'])} words",
                )
                for recall in recalls
                for block in recall["blocks"]
            ]
            yield MapLine(f"trial {trial['trial']}", (), tuple(found))
