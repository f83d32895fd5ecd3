"""Both texts side by side: what they share, what the generation left out and what it added."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from rote.corpus.normalise import normalised_words
from rote.longform.recall import RecallResult


class SegmentKind(StrEnum):
    SAME = "same"
    """In both texts, counted in nv-recall; the book's own characters."""
    MISSING = "missing"
    """Of the book, in no counted block."""
    ADDED = "added"
    """Of the generation, in no counted block."""
    ELSEWHERE = "elsewhere"
    """In the generation, and in the book at another place: a moved or duplicated passage."""


class Segment(NamedTuple):
    kind: SegmentKind
    text: str
    words: int


def segments(book: str, generation: str, result: RecallResult) -> Iterator[Segment]:
    """The pieces of both texts in reading order.

    Every word of the book is in exactly one `same` or `missing` segment and every unmatched word of the generation
    in exactly one `added` or `elsewhere` segment. Only counted blocks are aligned word by word.
    """
    book_words, generation_words = normalised_words(book), normalised_words(generation)
    elsewhere = {
        place
        for block in result.out_of_order
        for place in range(block.generation_word_start, block.generation_word_end)
    }

    def piece(kind: SegmentKind, start: int, end: int) -> Iterator[Segment]:
        is_of_book = kind in (SegmentKind.SAME, SegmentKind.MISSING)
        text, words = (book, book_words) if is_of_book else (generation, generation_words)
        if start < end:
            # Up to the next word, so that line ends stay where they were.
            until = words.char_starts[end] if end < len(words.words) else words.char_ends[end - 1]
            yield Segment(kind, text[words.char_starts[start] : until], end - start)

    def added(start: int, end: int) -> Iterator[Segment]:
        for is_elsewhere, places in groupby(range(start, end), elsewhere.__contains__):
            run = list(places)
            yield from piece(SegmentKind.ELSEWHERE if is_elsewhere else SegmentKind.ADDED, run[0], run[-1] + 1)

    book_at = generation_at = 0
    closing = (len(book_words.words), len(generation_words.words), 0)
    for book_start, generation_start, length in (*result.verbatim, closing):
        yield from piece(SegmentKind.MISSING, book_at, book_start)
        yield from added(generation_at, generation_start)
        yield from piece(SegmentKind.SAME, book_start, book_start + length)
        book_at, generation_at = book_start + length, generation_start + length
