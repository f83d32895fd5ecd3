"""nv-recall: the share of a book's words that stand, near-verbatim and in order, in a generated text."""

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from byrote.corpus.normalise import Words, normalised_words
from byrote.errors import ConfigError, TextError
from byrote.longform.matching import (
    PUBLISHED_PASSES,
    Block,
    Integers,
    MergePass,
    NearBlock,
    matching_blocks,
    near_verbatim_blocks,
)


class Placement(StrEnum):
    """Where a block is relative to the in-order alignment."""

    IN_ORDER = "in_order"
    """Counted in nv-recall."""
    MOVED = "moved"
    """Found by a repeated pass: at least half of its book words are in no earlier block."""
    DUPLICATED = "duplicated"
    """Found by a repeated pass: most of its book words are in an earlier block already."""


@dataclass(frozen=True, slots=True)
class RecallBlock:
    """One near-verbatim block; positions are half-open, words of the normalised and characters of the given texts."""

    placement: Placement
    matched_words: int
    book_word_start: int
    book_word_end: int
    generation_word_start: int
    generation_word_end: int
    book_char_start: int
    book_char_end: int
    generation_char_start: int
    generation_char_end: int


@dataclass(frozen=True, slots=True)
class RecallResult:
    """`matched_words` is m, summed over the in-order `blocks`; 0 ≤ m ≤ min(book_words, generation_words).

    `out_of_order` holds what repeated passes over the rest of the generation found (moved and duplicated passages).
    It is reported separately and never counted in m.
    """

    book_words: int
    generation_words: int
    matched_words: int
    blocks: tuple[RecallBlock, ...]
    verbatim: tuple[Block, ...]
    """The exact runs of words inside `blocks`; their lengths add up to `matched_words`."""
    out_of_order: tuple[RecallBlock, ...]
    passes: tuple[MergePass, ...]

    @property
    def nv_recall(self) -> float:
        return self.matched_words / self.book_words

    @property
    def missing_words(self) -> int:
        return self.book_words - self.matched_words

    @property
    def additional_words(self) -> int:
        return self.generation_words - self.matched_words

    @property
    def longest_block(self) -> int:
        """Matched words of the longest in-order block; 0 when nothing was matched."""
        return max((block.matched_words for block in self.blocks), default=0)

    def record(self) -> dict[str, Any]:
        """Everything in JSON's types, derived numbers first."""
        derived = {
            "nv_recall": self.nv_recall,
            "missing_words": self.missing_words,
            "additional_words": self.additional_words,
            "longest_block": self.longest_block,
        }
        return derived | asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "RecallResult":
        """What `record` was made of; derived numbers are derived again."""

        def blocks(name: str) -> tuple[RecallBlock, ...]:
            return tuple(RecallBlock(**{**row, "placement": Placement(row["placement"])}) for row in record[name])

        return cls(
            book_words=record["book_words"],
            generation_words=record["generation_words"],
            matched_words=record["matched_words"],
            blocks=blocks("blocks"),
            verbatim=tuple(Block(*row) for row in record["verbatim"]),
            out_of_order=blocks("out_of_order"),
            passes=tuple(MergePass(**row) for row in record["passes"]),
        )


def nv_recall(
    book: str, generation: str, *, passes: Sequence[MergePass] = PUBLISHED_PASSES, repeated_passes: int = 4
) -> RecallResult:
    """How much of `book` stands near-verbatim in `generation`.

    At most `repeated_passes` further passes look for moved and duplicated passages in what is left of the generation;
    they end as soon as one finds nothing.
    """
    for name, text in (("book", book), ("generation", generation)):
        if not isinstance(text, str):
            raise TextError(f"{name} is a {type(text).__name__}; give the text itself, as a string.")
    if repeated_passes < 0:
        raise ConfigError(f"repeated_passes is {repeated_passes}; give 0 or more.")
    book_words, generation_words = normalised_words(book), normalised_words(generation)
    if not book_words.words:
        raise TextError("The book has no words; give a text to compare with.")
    verbatim = matching_blocks(book_words.words, generation_words.words)
    in_order = near_verbatim_blocks(verbatim, passes)
    out_of_order = _repeated(book_words.words, generation_words.words, in_order, passes, limit=repeated_passes)
    return RecallResult(
        book_words=len(book_words.words),
        generation_words=len(generation_words.words),
        matched_words=sum(block.matched for block in in_order),
        blocks=tuple(_located(block, Placement.IN_ORDER, book_words, generation_words) for block in in_order),
        verbatim=tuple(_inside(verbatim, in_order)),
        out_of_order=tuple(
            _located(block, placement, book_words, generation_words) for block, placement in out_of_order
        ),
        passes=tuple(passes),
    )


def longest_common_run(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The number of items in the longest run that both sequences contain."""
    return max((block.length for block in matching_blocks(first, second)), default=0)


def _repeated(
    book: Sequence[str],
    generation: Sequence[str],
    in_order: Sequence[NearBlock],
    passes: Sequence[MergePass],
    *,
    limit: int,
) -> list[tuple[NearBlock, Placement]]:
    """Blocks between the whole book and what no earlier block took of the generation, classified."""
    is_left = np.ones(len(generation), dtype=bool)
    is_covered = np.zeros(len(book), dtype=bool)
    for block in in_order:
        is_covered[block.book_start : block.book_end] = True
    repeated: list[tuple[NearBlock, Placement]] = []
    latest = list(in_order)
    for _ in range(limit):
        for block in latest:
            is_left[block.generation_start : block.generation_end] = False
        # With nothing found the rest is unchanged, and another pass would find nothing again.
        if not latest or not is_left.any():
            break
        in_rest = _blocks_in_rest(book, generation, np.flatnonzero(is_left))
        # Nor may a merge reach across text that an earlier block took, however short.
        latest = near_verbatim_blocks(in_rest, passes, may_bridge=lambda start, end: bool(is_left[start:end].all()))
        for block in latest:
            covered = is_covered[block.book_start : block.book_end]
            repeated.append((block, Placement.DUPLICATED if covered.mean() > 0.5 else Placement.MOVED))
            covered[:] = True
    return repeated


def _blocks_in_rest(book: Sequence[str], generation: Sequence[str], rest: Integers) -> list[Block]:
    """Matching blocks with the words at `rest`, at their places in the generation, none across a cut."""
    items: list[Hashable] = []
    places: list[int] = []
    for place in rest.tolist():
        if places and place != places[-1] + 1:
            items.append(object())  # equal to nothing: a block cannot reach across text that was taken out
            places.append(place - 1)
        items.append(generation[place])
        places.append(place)
    return [Block(i, places[j], length) for i, j, length in matching_blocks(book, items)]


def _inside(verbatim: Sequence[Block], near: Sequence[NearBlock]) -> list[Block]:
    starts = [block.book_start for block in near]
    return [
        block
        for block in verbatim
        if (at := bisect_right(starts, block.book_start)) and block.book_start < near[at - 1].book_end
    ]


def _located(block: NearBlock, placement: Placement, book: Words, generation: Words) -> RecallBlock:
    return RecallBlock(
        placement=placement,
        matched_words=block.matched,
        book_word_start=block.book_start,
        book_word_end=block.book_end,
        generation_word_start=block.generation_start,
        generation_word_end=block.generation_end,
        book_char_start=int(book.char_starts[block.book_start]),
        book_char_end=int(book.char_ends[block.book_end - 1]),
        generation_char_start=int(generation.char_starts[block.generation_start]),
        generation_char_end=int(generation.char_ends[block.generation_end - 1]),
    )


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
