"""A book and an answer side by side: each near-verbatim passage as rows of words that stand across from each other.

Rows are short enough to compare at a glance. Long stretches that are the same in both are folded, so that what differs
is seen; nothing is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byrote.corpus.normalise import Words, normalised_words
from byrote.longform.recall import RecallBlock, RecallResult

ROW_WORDS = 40
SHORTEST_FOLD_ROWS = 5
"""Rows of the same words in a row, the first and the last of which stay open."""


class Span(NamedTuple):
    """Words [book_start, book_end) of the book across from [answer_start, answer_end) of the answer."""

    book_start: int
    book_end: int
    answer_start: int
    answer_end: int
    is_same: bool

    @property
    def words(self) -> int:
        return max(self.book_end - self.book_start, self.answer_end - self.answer_start)


class Piece(NamedTuple):
    """A few words of both texts, as they are written there; one of them may be empty where they differ."""

    book: str
    answer: str
    is_same: bool


class Row(NamedTuple):
    pieces: tuple[Piece, ...]
    words: int

    @property
    def is_same(self) -> bool:
        return all(piece.is_same for piece in self.pieces)


class Stretch(NamedTuple):
    """Rows that are shown, or folded because they are all the same."""

    rows: tuple[Row, ...]
    is_folded: bool

    @property
    def words(self) -> int:
        return sum(row.words for row in self.rows)


@dataclass(frozen=True)
class Pair:
    """Two texts and their words, normalised once."""

    book: str
    answer: str
    book_words: Words
    answer_words: Words

    @classmethod
    def of(cls, book: str, answer: str) -> "Pair":
        return cls(book, answer, normalised_words(book), normalised_words(answer))

    def piece(self, span: Span) -> Piece:
        return Piece(
            _text(self.book, self.book_words, span.book_start, span.book_end),
            _text(self.answer, self.answer_words, span.answer_start, span.answer_end),
            span.is_same,
        )


def block_spans(result: RecallResult, block: RecallBlock) -> list[Span]:
    """The words of an in-order block: exact runs, and what stands between them in either text."""
    inside = [run for run in result.verbatim if block.book_word_start <= run.book_start < block.book_word_end]
    spans: list[Span] = []
    book_at, answer_at = block.book_word_start, block.generation_word_start
    for run in inside:
        if (book_at, answer_at) != (run.book_start, run.generation_start):
            spans.append(Span(book_at, run.book_start, answer_at, run.generation_start, False))
        book_at, answer_at = run.book_start + run.length, run.generation_start + run.length
        spans.append(Span(run.book_start, book_at, run.generation_start, answer_at, True))
    return spans


def rows(pair: Pair, spans: Sequence[Span]) -> list[Row]:
    """The spans cut into rows of about `ROW_WORDS` words; every word is in exactly one row."""
    found: list[Row] = []
    pieces: list[Piece] = []
    words = 0
    for span in _short_spans(spans):
        pieces.append(pair.piece(span))
        words += span.words
        if words >= ROW_WORDS:
            found.append(Row(tuple(pieces), words))
            pieces, words = [], 0
    return [*found, Row(tuple(pieces), words)] if pieces else found


def folded(all_rows: Sequence[Row]) -> list[Stretch]:
    """The rows in order, the inside of every long stretch of same rows folded."""
    stretches: list[Stretch] = []
    open_rows: list[Row] = []
    for is_same, group in _runs(all_rows):
        if not is_same or len(group) < SHORTEST_FOLD_ROWS:
            open_rows += group
            continue
        stretches.append(Stretch((*open_rows, group[0]), is_folded=False))
        stretches.append(Stretch(tuple(group[1:-1]), is_folded=True))
        open_rows = [group[-1]]
    return [*stretches, Stretch(tuple(open_rows), is_folded=False)] if open_rows else stretches


def _short_spans(spans: Sequence[Span]) -> Iterator[Span]:
    """Same spans cut where a row is full; what differs stays together, so that it can be compared."""
    room = ROW_WORDS
    for span in spans:
        while span.is_same and span.words > room:
            yield span._replace(book_end=span.book_start + room, answer_end=span.answer_start + room)
            span = span._replace(book_start=span.book_start + room, answer_start=span.answer_start + room)
            room = ROW_WORDS
        yield span
        room = room - span.words if span.words < room else ROW_WORDS


def _runs(all_rows: Sequence[Row]) -> Iterator[tuple[bool, list[Row]]]:
    run: list[Row] = []
    for row in all_rows:
        if run and run[-1].is_same != row.is_same:
            yield run[-1].is_same, run
            run = []
        run.append(row)
    if run:
        yield run[-1].is_same, run


def _text(text: str, words: Words, start: int, end: int) -> str:
    return text[words.char_starts[start] : words.char_ends[end - 1]] if start < end else ""
