"""nv-recall: the share of a book's words that stand, near-verbatim and in order, in a generated text."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from byrote.corpus.normalise import Words, normalised_words
from byrote.errors import ConfigError, TextError
from byrote.longform import matching

Placement = Literal["in_order", "moved", "duplicated"]
"""Counted in nv-recall; or found by a repeated pass, `duplicated` if most of its book words are in an earlier block."""


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
    verbatim: tuple[matching.Block, ...]
    """The exact runs of words inside `blocks`; their lengths add up to `matched_words`."""
    out_of_order: tuple[RecallBlock, ...]
    passes: tuple[matching.MergePass, ...]

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
        return cls(
            book_words=record["book_words"],
            generation_words=record["generation_words"],
            matched_words=record["matched_words"],
            blocks=tuple(RecallBlock(**row) for row in record["blocks"]),
            verbatim=tuple(matching.Block(*row) for row in record["verbatim"]),
            out_of_order=tuple(RecallBlock(**row) for row in record["out_of_order"]),
            passes=tuple(matching.MergePass(**row) for row in record["passes"]),
        )


def nv_recall(
    book: str,
    generation: str,
    *,
    passes: Sequence[matching.MergePass] = matching.PUBLISHED_PASSES,
    repeated_passes: int = 4,
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
    verbatim = matching.matching_blocks(book_words.words, generation_words.words)
    in_order = matching.near_verbatim_blocks(verbatim, passes)
    is_covered = np.zeros(len(book_words.words), dtype=bool)
    for block in in_order:
        is_covered[block.book_start : block.book_end] = True
    inside = tuple(block for block in verbatim if is_covered[block.book_start])
    words = (book_words.words, generation_words.words)
    out_of_order = _repeated(*words, in_order, is_covered, passes, limit=repeated_passes)
    return RecallResult(
        book_words=len(book_words.words),
        generation_words=len(generation_words.words),
        matched_words=sum(block.matched for block in in_order),
        blocks=tuple(_located(block, "in_order", book_words, generation_words) for block in in_order),
        verbatim=inside,
        out_of_order=tuple(
            _located(block, placement, book_words, generation_words) for block, placement in out_of_order
        ),
        passes=tuple(passes),
    )


def longest_common_run(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The number of items in the longest run that both sequences contain."""
    return max((block.length for block in matching.matching_blocks(first, second)), default=0)


def _repeated(
    book: Sequence[str],
    generation: Sequence[str],
    latest: list[matching.NearBlock],
    is_covered: NDArray[np.bool_],
    passes: Sequence[matching.MergePass],
    *,
    limit: int,
) -> list[tuple[matching.NearBlock, Placement]]:
    """Blocks between the whole book and what no earlier block took of the generation, classified.

    `latest` are the blocks in order, and `is_covered` the words of the book in any block; the repeated ones are added.
    """
    is_left = np.ones(len(generation), dtype=bool)
    repeated: list[tuple[matching.NearBlock, Placement]] = []
    for _ in range(limit):
        for block in latest:
            is_left[block.generation_start : block.generation_end] = False
        # With nothing found the rest is unchanged, and another pass would find nothing again.
        if not latest or not is_left.any():
            break
        in_rest = _blocks_in_rest(book, generation, np.flatnonzero(is_left))
        # Nor may a merge reach across text that an earlier block took, however short.
        latest = matching.near_verbatim_blocks(
            in_rest, passes, may_bridge=lambda start, end: bool(is_left[start:end].all())
        )
        for block in latest:
            covered = is_covered[block.book_start : block.book_end]
            repeated.append((block, "duplicated" if covered.mean() > 0.5 else "moved"))
            covered[:] = True
    return repeated


def _blocks_in_rest(book: Sequence[str], generation: Sequence[str], rest: matching.Integers) -> list[matching.Block]:
    """Matching blocks with the words at `rest`, at their places in the generation, none across a cut."""
    items: list[Hashable] = []
    places: list[int] = []
    for place in rest.tolist():
        if places and place != places[-1] + 1:
            items.append(object())  # equal to nothing: a block cannot reach across text that was taken out
            places.append(place - 1)
        items.append(generation[place])
        places.append(place)
    return [matching.Block(i, places[j], length) for i, j, length in matching.matching_blocks(book, items)]


def _located(block: matching.NearBlock, placement: Placement, book: Words, generation: Words) -> RecallBlock:
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
