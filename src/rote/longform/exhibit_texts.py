"""The texts of an exhibit: passages beside the answer, failed sections beside theirs, prompts, and lines of the map."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rote.corpus.normalise import normalised_words
from rote.longform.audit_folder import AuditFolder, closest_name, generation_name
from rote.longform.blocks import Block, matching_blocks
from rote.longform.options import CONTINUE_PROMPTS
from rote.longform.passages import Pair, Span, Stretch, block_spans, folded, rows
from rote.longform.recall import RecallBlock, RecallResult
from rote.report.words import integer, percent

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
