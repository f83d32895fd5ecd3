"""Matching words of two texts: difflib's matching blocks, found exactly and fast, and their merging into near-verbatim
blocks.

Runs of 1, 2, 4, … words are numbered over both texts, equal runs equally, so that runs of any length are compared
without hashing and without a chance of collision. The gaps between the blocks found so far are rectangles of both
texts; in each, a binary search over the length finds all its longest shared runs at once.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.options import Settled, required

Integers = NDArray[np.int64]
_SMALL_AREA = 2_500
"""Pairs of words below which difflib itself is faster."""


class Block(NamedTuple):
    """`length` words that are equal, at `book_start` in the first list and `generation_start` in the second."""

    book_start: int
    generation_start: int
    length: int


class _Rectangle(NamedTuple):
    """Words [low, high) of both texts, which share no run longer than `longest`."""

    book_low: int
    book_high: int
    generation_low: int
    generation_high: int
    longest: int


def matching_blocks(book: Sequence[Hashable], generation: Sequence[Hashable]) -> list[Block]:
    """difflib's matching blocks in order, without its closing entry of length 0."""
    numbering: dict[Hashable, int] = {}
    first, second = ([numbering.setdefault(word, len(numbering)) for word in text] for text in (book, generation))
    runs = _numbered_runs(np.array(first + second, dtype=np.int64), longest=min(len(first), len(second)))
    found: list[Block] = []
    rectangles = [_Rectangle(0, len(first), 0, len(second), min(len(first), len(second)))]
    while rectangles:
        rectangle = rectangles.pop()
        i, book_high, j, generation_high, longest = rectangle
        area = (book_high - i) * (generation_high - j)
        if area == 0 or longest == 0:
            continue
        if area <= _SMALL_AREA:
            small = SequenceMatcher(None, first[i:book_high], second[j:generation_high], autojunk=False)
            found += [Block(i + match.a, j + match.b, match.size) for match in small.get_matching_blocks()[:-1]]
            continue
        blocks = _longest_blocks(rectangle, runs, len(first))
        found += blocks
        # What is left of a block has no run as long: difflib takes the first of equals.
        for block in (*blocks, Block(book_high, generation_high, 0)) if blocks else ():
            rectangles.append(_Rectangle(i, block.book_start, j, block.generation_start, blocks[0].length - 1))
            i, j = block.book_start + block.length, block.generation_start + block.length
    return sorted(found)


def _numbered_runs(words: Integers, *, longest: int) -> list[Integers]:
    """`runs[level][n]` is the number of the run of 2^level words from n on; equal runs have equal numbers."""
    runs = [words]
    while (width := 2 ** len(runs)) <= longest and runs[-1].max() + 1 < len(runs[-1]):
        pairs = runs[-1][: -width // 2] * len(words) + runs[-1][width // 2 :]
        runs.append(np.unique(pairs, return_inverse=True)[1])
    return runs


def _longest_blocks(rectangle: _Rectangle, runs: list[Integers], shift: int) -> list[Block]:
    """The longest shared runs from left to right, each the first that is left in either text."""
    book_low, book_high, generation_low, generation_high, longest = rectangle
    # Places at which a shared run of `length` words starts, in order, and the numbers of these runs.
    book, generation = np.arange(book_low, book_high), np.arange(generation_low, generation_high)
    book_runs, generation_runs = np.zeros_like(book), np.zeros_like(generation)
    length = 0
    for level in reversed(range(min(len(runs), longest.bit_length()))):
        longer = length + 2**level
        first = book[: np.searchsorted(book, book_high - longer, side="right")]
        second = generation[: np.searchsorted(generation, generation_high - longer, side="right")]
        first_runs, second_runs = runs[level][first + length], runs[level][second + shift + length]
        if length:
            earlier = np.concatenate([book_runs[: len(first)], generation_runs[: len(second)]])
            pairs = earlier * len(runs[0]) + np.concatenate([first_runs, second_runs])
            first_runs, second_runs = np.split(np.unique(pairs, return_inverse=True)[1], [len(first)])
        is_shared = np.isin(first_runs, second_runs)
        if is_shared.any():
            book, book_runs, length = first[is_shared], first_runs[is_shared], longer
            is_shared = np.isin(second_runs, first_runs)
            generation, generation_runs = second[is_shared], second_runs[is_shared]
    starts: dict[int, list[int]] = {}
    blocks: list[Block] = []
    if length == 0:
        return blocks
    for run, start in zip(generation_runs.tolist(), generation.tolist(), strict=True):
        starts.setdefault(run, []).append(start)
    for run, start in zip(book_runs.tolist(), book.tolist(), strict=True):
        following = bisect_left(starts[run], generation_low)
        if start >= book_low and following < len(starts[run]):
            blocks.append(Block(start, starts[run][following], length))
            book_low, generation_low = start + length, starts[run][following] + length
    return blocks


@dataclass(frozen=True, slots=True)
class MergePass(Settled):
    """Neighbours are merged if both gaps are ≤ `max_gap` words and differ by ≤ `max_misalignment`.

    Afterwards blocks with fewer than `min_words` matched words are dropped.
    """

    max_gap: int = required("", group="audit", at_least=0)
    max_misalignment: int = required("", group="audit", at_least=0)
    min_words: int = required("", group="audit", at_least=0)


PUBLISHED_PASSES = (
    MergePass(max_gap=2, max_misalignment=1, min_words=20),
    MergePass(max_gap=10, max_misalignment=3, min_words=100),
)


class NearBlock(NamedTuple):
    """Words [book_start, book_end) of the book, near-verbatim at [generation_start, generation_end).

    `matched` counts only the words that are equal, not the gaps that a merge bridged.
    """

    book_start: int
    book_end: int
    generation_start: int
    generation_end: int
    matched: int


def near_verbatim_blocks(
    blocks: Iterable[Block],
    passes: Sequence[MergePass] = PUBLISHED_PASSES,
    *,
    may_bridge: Callable[[int, int], bool] = lambda start, end: True,
) -> list[NearBlock]:
    """The blocks that survive all passes in turn, in the order of the book.

    `may_bridge` is whether a merge may reach across the generation's words [start, end).
    """
    near = [NearBlock(i, i + length, j, j + length, length) for i, j, length in blocks]
    for merge_pass in passes:
        merged: list[NearBlock] = []
        for block in near:
            last = merged[-1] if merged else None
            if (
                last is not None
                and _is_mergeable(last, block, merge_pass)
                and may_bridge(last.generation_end, block.generation_start)
            ):
                matched = last.matched + block.matched
                merged[-1] = last._replace(
                    book_end=block.book_end, generation_end=block.generation_end, matched=matched
                )
            else:
                merged.append(block)
        near = [block for block in merged if block.matched >= merge_pass.min_words]
    return near


def _is_mergeable(left: NearBlock, right: NearBlock, merge_pass: MergePass) -> bool:
    book_gap = right.book_start - left.book_end
    generation_gap = right.generation_start - left.generation_end
    is_near = max(book_gap, generation_gap) <= merge_pass.max_gap
    return is_near and abs(book_gap - generation_gap) <= merge_pass.max_misalignment
