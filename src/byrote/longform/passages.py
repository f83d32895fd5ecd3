"""A book and an answer side by side: each near-verbatim passage as rows of words that correspond to each other.

Rows are short enough to compare at a glance. Long stretches that are the same in both are folded, so that differences
stand out; nothing is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from byrote.corpus.normalise import Words, normalised_words
from byrote.longform.matching import Block, matching_blocks
from byrote.longform.recall import RecallBlock, RecallResult
from byrote.report.templates import rendered
from byrote.report.words import integer, percent

HTML = Path(__file__).parent / "html"
ROW_WORDS = 40
SHORTEST_FOLD_ROWS = 5
"""Consecutive rows of equal words, the first and the last of which stay open."""
PRINTED_PASSAGES = 6
PRINTED_ROWS = 8
"""Rows of one passage that go onto paper; the rest is on the screen and in the files."""
OPENING_WORDS = 9


class Span(NamedTuple):
    """Words [book_start, book_end) of the book beside [answer_start, answer_end) of the answer."""

    book_start: int
    book_end: int
    answer_start: int
    answer_end: int
    is_same: bool

    @property
    def words(self) -> int:
        return max(self.book_end - self.book_start, self.answer_end - self.answer_start)


class SpanTexts(NamedTuple):
    """The words of a span as they are written in both texts; one of them may be empty where they differ."""

    book: str
    answer: str
    is_same: bool


class ComparedRow(NamedTuple):
    pieces: tuple[SpanTexts, ...]
    words: int

    @property
    def is_same(self) -> bool:
        return all(piece.is_same for piece in self.pieces)


class Stretch(NamedTuple):
    """Consecutive rows, shown or folded; folded ones are all the same in both texts."""

    rows: tuple[ComparedRow, ...]
    is_folded: bool

    @property
    def words(self) -> int:
        return sum(row.words for row in self.rows)


class TextPair:
    """Two texts and their words, normalised once."""

    def __init__(self, book: str, answer: str) -> None:
        self.book, self.answer = book, answer
        self.book_words, self.answer_words = normalised_words(book), normalised_words(answer)

    def texts(self, span: Span) -> SpanTexts:
        def text(whole: str, words: Words, start: int, end: int) -> str:
            return whole[words.char_starts[start] : words.char_ends[end - 1]] if start < end else ""

        return SpanTexts(
            text(self.book, self.book_words, span.book_start, span.book_end),
            text(self.answer, self.answer_words, span.answer_start, span.answer_end),
            span.is_same,
        )


class MeasuredText(NamedTuple):
    """A measurement with its texts; `section` is the part of the audit it belongs to."""

    result: RecallResult
    pair: TextPair
    section: str = ""


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """A page with passages side by side; `values` has its headline."""
    printed = {"printed_passages": PRINTED_PASSAGES, "printed_rows": PRINTED_ROWS, "title": values["headline"]}
    text = rendered(template, styles=[HTML / "exhibit.css"], folder=HTML, **values, **printed)
    # Half of a surrogate pair has no place in a file; it is shown by its number.
    return text.encode("utf-8", "backslashreplace").decode()


def passages_of(measured: Sequence[MeasuredText]) -> list[dict[str, Any]]:
    """Every near-verbatim block as a page shows it, longest first over all sections."""
    found = [(block, one) for one in measured for block in one.result.blocks]
    found.sort(key=lambda entry: (-entry[0].matched_words, entry[0].book_word_start))
    return [_passage(rank, *entry) for rank, entry in enumerate(found, 1)]


def _passage(rank: int, block: RecallBlock, measured: MeasuredText) -> dict[str, Any]:
    result, pair, section = measured
    spans = block_spans(result, block)
    start, end, total = block.book_word_start, block.book_word_end, result.book_words
    opening = pair.texts(Span(start, min(end, start + OPENING_WORDS), 0, 0, True)).book
    anchor, matched = f"passage-{rank}", integer(block.matched_words)
    return {
        "anchor": anchor,
        "words": matched,
        "section": section,
        "opening": f"{opening} …",
        "book_words": word_range(start, end),
        "answer_words": word_range(block.generation_word_start, block.generation_word_end),
        "share": f"{percent(start / total)} – {percent(end / total)}",
        "differences": sum(not span.is_same for span in spans),
        "on_map": map_piece(start, end, total, f"{matched} words", anchor=anchor),
        "stretches": folded(rows(pair, spans)),
        "is_printed": rank <= PRINTED_PASSAGES,
    }


def map_piece(start: int, end: int, book_words: int, title: str, *, anchor: str | None = None) -> dict[str, Any]:
    """Words [start, end) on a line that is the book, from 0 to 100."""
    left, width = 100 * start / book_words, 100 * (end - start) / book_words
    return {"left": left, "width": width, "title": title, "anchor": anchor}


def elsewhere_rows(measured: Sequence[MeasuredText]) -> Iterator[dict[str, Any]]:
    """Passages that are out of order, or duplicated, and not counted."""
    for one in measured:
        for block in one.result.out_of_order:
            yield {
                "words": integer(block.matched_words),
                "book": word_range(block.book_word_start, block.book_word_end),
                "answer": word_range(block.generation_word_start, block.generation_word_end),
                "placement": block.placement.replace("_", " "),
            }


def word_range(start: int, end: int) -> str:
    """The words [start, end), counted from 1."""
    return f"{integer(start + 1)}–{integer(end)}"


def block_spans(result: RecallResult, block: RecallBlock) -> list[Span]:
    """The words of an in-order block: exact runs, and what is between them in either text."""
    spans: list[Span] = []
    book_at, answer_at = block.book_word_start, block.generation_word_start
    for run in result.verbatim:
        if not block.book_word_start <= run.book_start < block.book_word_end:
            continue
        if (book_at, answer_at) != (run.book_start, run.generation_start):
            spans.append(Span(book_at, run.book_start, answer_at, run.generation_start, False))
        book_at, answer_at = run.book_start + run.length, run.generation_start + run.length
        spans.append(Span(run.book_start, book_at, run.generation_start, answer_at, True))
    return spans


def beside_target(pair: TextPair) -> tuple[Stretch, ...]:
    """The target beside the part of the answer that is nearest to it: as many words around the longest run."""
    target_words, answer_words = len(pair.book_words.words), len(pair.answer_words.words)
    blocks = matching_blocks(pair.book_words.words, pair.answer_words.words)
    book, answer, length = max(blocks, key=lambda run: run.length, default=Block(0, 0, 0))
    first, last = max(0, answer - book), min(answer_words, answer + target_words - book)
    spans = [
        Span(0, book, first, answer, False),
        Span(book, book + length, answer, answer + length, True),
        Span(book + length, target_words, answer + length, last, False),
    ]
    return folded(rows(pair, [span for span in spans if span.words]))


def rows(pair: TextPair, spans: Sequence[Span]) -> list[ComparedRow]:
    """The spans in rows of about `ROW_WORDS` words; every word is in exactly one row.

    A span that is the same in both is cut where a row is full; one that differs is not, so that it can be compared.
    """
    found: list[ComparedRow] = []
    pieces: list[SpanTexts] = []
    words = 0
    queue = list(reversed(spans))
    while queue:
        span = queue.pop()
        if span.is_same and span.words > ROW_WORDS - words:
            book_cut, answer_cut = span.book_start + ROW_WORDS - words, span.answer_start + ROW_WORDS - words
            queue.append(span._replace(book_start=book_cut, answer_start=answer_cut))
            span = span._replace(book_end=book_cut, answer_end=answer_cut)
        pieces.append(pair.texts(span))
        words += span.words
        if words >= ROW_WORDS or not queue:
            found.append(ComparedRow(tuple(pieces), words))
            pieces, words = [], 0
    return found


def folded(all_rows: Sequence[ComparedRow]) -> tuple[Stretch, ...]:
    """The rows in order, the inside of every long stretch of equal rows folded."""
    stretches: list[Stretch] = []
    open_rows: list[ComparedRow] = []
    for is_same, group in groupby(all_rows, key=lambda row: row.is_same):
        run = list(group)
        if not is_same or len(run) < SHORTEST_FOLD_ROWS:
            open_rows += run
            continue
        stretches.append(Stretch((*open_rows, run[0]), is_folded=False))
        stretches.append(Stretch(tuple(run[1:-1]), is_folded=True))
        open_rows = [run[-1]]
    return (*stretches, Stretch(tuple(open_rows), is_folded=False)) if open_rows else tuple(stretches)
