"""Matching words of two texts: difflib's matching blocks, found exactly and fast, and their merging into near-verbatim
blocks.

The index of every shared run of words (suffix order, common-prefix lengths, matching statistics) is built by prefix
doubling in numpy: `ranks[level][p]` numbers the distinct runs of 2^level words, so equal numbers mean equal runs,
without hashing and without a chance of collision. Cost: O(n log n log L) for n words and the longest repeated run L.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.options import Settled, required

Integers = NDArray[np.int64]


def shared_ids(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[Integers, Integers]:
    """The two sequences as integers from 0 upward, equal where the items are equal."""
    numbering: dict[Hashable, int] = {}
    numbered = [
        np.fromiter((numbering.setdefault(item, len(numbering)) for item in items), dtype=np.int64, count=len(items))
        for items in (first, second)
    ]
    return numbered[0], numbered[1]


@dataclass(frozen=True, slots=True)
class SuffixIndex:
    """The suffixes of two joined texts in sorted order.

    `slot_of_first[i]` is the place of the first text's suffix i in that order. `common[s]` is the number of leading
    words that the suffixes at places s − 1 and s share (0 at place 0), never reaching across the end of the first
    text. `second_before[s]` counts the suffixes of the second text at places below s, and `second_positions` lists
    them in sorted order: the occurrences at places [lo, hi) are
    `second_positions[second_before[lo]:second_before[hi]]`.
    """

    slot_of_first: Integers
    common: Integers
    second_before: Integers
    second_positions: Integers
    longest_in_second: Integers
    """For each position of the first text, the longest run starting there that occurs anywhere in the second."""

    @classmethod
    def build(cls, first: Integers, second: Integers) -> "SuffixIndex":
        separator = 1 + max(first.max(initial=0), second.max(initial=0))
        joined = np.concatenate([first, [separator], second])
        ranks = _doubled_ranks(joined)
        slots = ranks[-1]
        order = np.empty_like(slots)
        order[slots] = np.arange(len(slots))
        common = np.zeros(len(order), dtype=np.int64)
        common[1:] = _common_prefix(ranks, order[:-1], order[1:])
        is_second = order > len(first)
        second_before = np.concatenate([[0], np.cumsum(is_second)])
        slot_of_first = slots[: len(first)]
        return cls(
            slot_of_first=slot_of_first,
            common=common,
            second_before=second_before,
            second_positions=order[is_second] - len(first) - 1,
            longest_in_second=_nearest_common(ranks, order, second_before, slot_of_first),
        )


def _doubled_ranks(items: Integers) -> list[Integers]:
    """Ranks of the runs of 1, 2, 4, … items; the last level is a permutation (every suffix distinct)."""
    ranks = [_dense_ranks(items)]
    width = 1
    while ranks[-1].max() + 1 < len(items):
        following = np.zeros(len(items), dtype=np.int64)  # 0 = past the end, below every rank + 1
        following[:-width] = ranks[-1][width:] + 1
        ranks.append(_dense_ranks(ranks[-1] * (len(items) + 1) + following))
        width *= 2
    return ranks


def _dense_ranks(keys: Integers) -> Integers:
    order = np.argsort(keys)
    in_order = keys[order]
    dense = np.zeros(len(keys), dtype=np.int64)
    dense[order[1:]] = np.cumsum(in_order[1:] != in_order[:-1])
    return dense


def _common_prefix(ranks: list[Integers], left: Integers, right: Integers) -> Integers:
    """The number of leading items that the suffixes at `left` and `right` (different positions) share."""
    total = np.zeros(len(left), dtype=np.int64)
    last = len(ranks[0]) - 1
    for level in reversed(range(len(ranks) - 1)):
        left_at, right_at = left + total, right + total
        inside = (left_at <= last) & (right_at <= last)
        rank = ranks[level]
        equal = inside & (rank[np.minimum(left_at, last)] == rank[np.minimum(right_at, last)])
        total += equal * (1 << level)
    return total


def _nearest_common(
    ranks: list[Integers], order: Integers, second_before: Integers, slot_of_first: Integers
) -> Integers:
    """The longer of the common prefixes with the nearest suffix of the second text above and below."""
    second_slots = np.flatnonzero(np.diff(second_before))
    longest = np.zeros(len(slot_of_first), dtype=np.int64)
    if len(second_slots) == 0:
        return longest
    own = np.arange(len(slot_of_first))
    following = second_before[slot_of_first]
    for neighbour in (following - 1, following):
        exists = (neighbour >= 0) & (neighbour < len(second_slots))
        partner = order[second_slots[neighbour[exists]]]
        longest[exists] = np.maximum(longest[exists], _common_prefix(ranks, own[exists], partner))
    return longest


_REFRESH_AFTER_EMPTY_LEVELS = 32


class Block(NamedTuple):
    """`length` words that are equal, at `book_start` in the first list and `generation_start` in the second."""

    book_start: int
    generation_start: int
    length: int


def matching_blocks(book: Sequence[Hashable], generation: Sequence[Hashable]) -> list[Block]:
    """difflib's matching blocks in order, without its closing entry of length 0."""
    book_ids, generation_ids = shared_ids(book, generation)
    if len(book_ids) == 0 or len(generation_ids) == 0:
        return []
    return _Search(book_ids, generation_ids).run()


class _RunCandidates(NamedTuple):
    """Positions of the book that may start a run of the level's length, each with its rectangle and its group.

    The group is the range of sorted suffixes that begin with the same run; `slot_low` and `slot_high` bound it.
    """

    position: Integers
    rectangle: Integers
    book_high: Integers
    generation_low: Integers
    generation_high: Integers
    slot_low: Integers
    slot_high: Integers

    def where(self, keep: NDArray[np.bool_]) -> "_RunCandidates":
        return _RunCandidates(*(column[keep] for column in self))


class _Occurrences(NamedTuple):
    """Occurrences of the touched groups in the generation, as sorted keys group × stride + position."""

    keys: list[int]
    group: Integers
    stride: int


class _Search:
    """The rectangles still open are the gaps between the blocks found so far."""

    def __init__(self, book: Integers, generation: Integers) -> None:
        self.book = book
        self.generation = generation
        self.index = SuffixIndex.build(book, generation)
        self.bound = self.index.longest_in_second.copy()
        self.blocks = np.zeros((0, 3), dtype=np.int64)

    def run(self) -> list[Block]:
        empty_levels = 0
        while (level := int(self.bound.max())) > 0:
            candidates = self._candidates(level)
            found = self._visit(candidates, level)
            if found:
                self._add(found)
                empty_levels = 0
            elif (empty_levels := empty_levels + 1) >= _REFRESH_AFTER_EMPTY_LEVELS:
                self._refresh(candidates)
                empty_levels = 0
        return [Block(*row) for row in self.blocks.tolist()]

    def _candidates(self, level: int) -> _RunCandidates:
        position = np.flatnonzero(self.bound == level)
        rectangle = np.searchsorted(self.blocks[:, 0], position)
        ends = np.concatenate([[[0, 0]], self.blocks[:, :2] + self.blocks[:, 2:]])
        starts = np.concatenate([self.blocks[:, :2], [[len(self.book), len(self.generation)]]])
        group_starts = np.flatnonzero(self.index.common < level)
        group = np.searchsorted(group_starts, self.index.slot_of_first[position], side="right")
        return _RunCandidates(
            position=position,
            rectangle=rectangle,
            book_high=starts[rectangle, 0],
            generation_low=ends[rectangle, 1],
            generation_high=starts[rectangle, 1],
            slot_low=group_starts[group - 1],
            slot_high=np.append(group_starts, len(self.index.common))[group],
        )

    def _visit(self, candidates: _RunCandidates, level: int) -> list[Block]:
        """The blocks of this level, left to right; every candidate's bound is below `level` afterwards."""
        longest_fit = np.minimum(
            candidates.book_high - candidates.position, candidates.generation_high - candidates.generation_low
        )
        self.bound[candidates.position] = np.minimum(longest_fit, level - 1)
        fitting = candidates.where(longest_fit >= level)
        if len(fitting.position) == 0:
            return []
        occurrences = self._occurrences(fitting)
        first = self._first_occurrence(fitting, occurrences)
        shorter = self._next_bound(fitting, first, level)
        self.bound[fitting.position] = shorter
        hits = first + level <= fitting.generation_high
        return self._scan(fitting.where(hits), first[hits], occurrences._replace(group=occurrences.group[hits]), level)

    def _occurrences(self, candidates: _RunCandidates) -> _Occurrences:
        lows, group = np.unique(candidates.slot_low, return_inverse=True)
        highs = np.zeros_like(lows)
        highs[group] = candidates.slot_high
        begins, ends = self.index.second_before[lows], self.index.second_before[highs]
        counts = ends - begins
        stride = len(self.generation) + 1
        # One flat gather of all ranges: the n-th entry of a range is its begin plus n.
        flat = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begins, counts)
        keys = np.repeat(np.arange(len(lows)), counts) * stride + self.index.second_positions[flat]
        keys.sort()
        return _Occurrences(keys.tolist(), group, stride)

    def _first_occurrence(self, candidates: _RunCandidates, occurrences: _Occurrences) -> Integers:
        """The first start of the run in the generation inside the rectangle; the generation's length if none."""
        keys = np.array([*occurrences.keys, np.iinfo(np.int64).max])
        at = keys[np.searchsorted(keys, occurrences.group * occurrences.stride + candidates.generation_low)]
        return np.where(at // occurrences.stride == occurrences.group, at % occurrences.stride, len(self.generation))

    def _next_bound(self, candidates: _RunCandidates, first: Integers, level: int) -> Integers:
        """The longest shorter run that is still possible.

        Either a shorter run has more occurrences, which begins at the common length with the group's neighbours;
        or a known occurrence that overhangs the rectangle fits when it is cut there.
        """
        common = np.append(self.index.common, 0)
        wider_group = np.maximum(common[candidates.slot_low], common[candidates.slot_high])
        shorter: Integers = np.minimum(np.maximum(wider_group, candidates.generation_high - first), level - 1)
        return shorter

    def _scan(self, hits: _RunCandidates, first: Integers, occurrences: _Occurrences, level: int) -> list[Block]:
        found: list[Block] = []
        keys, stride = occurrences.keys, occurrences.stride
        open_rectangle, book_floor, generation_floor = -1, 0, 0
        columns = (hits.position, hits.rectangle, hits.generation_high, first, occurrences.group)
        for position, rectangle, high, start, group in zip(*(column.tolist() for column in columns), strict=True):
            if rectangle == open_rectangle:
                if position < book_floor:
                    continue
                if start < generation_floor:
                    key_at = bisect_left(keys, group * stride + generation_floor)
                    if key_at == len(keys) or keys[key_at] // stride != group:
                        continue
                    start = keys[key_at] % stride
            if start + level <= high:
                found.append(Block(position, start, level))
                open_rectangle, book_floor, generation_floor = rectangle, position + level, start + level
        return found

    def _add(self, found: list[Block]) -> None:
        for block in found:
            self.bound[block.book_start : block.book_start + block.length] = 0
        blocks = np.concatenate([self.blocks, np.array(found, dtype=np.int64)])
        self.blocks = blocks[np.argsort(blocks[:, 0])]

    def _refresh(self, candidates: _RunCandidates) -> None:
        """Make the bounds exact inside the candidates' rectangles.

        Long passages that occur only outside their rectangle would otherwise be worked off one level per word.
        """
        boundaries = np.concatenate([[[0, 0, 0]], self.blocks, [[len(self.book), len(self.generation), 0]]])
        for rectangle in np.unique(candidates.rectangle).tolist():
            before, after = boundaries[rectangle], boundaries[rectangle + 1]
            book = slice(before[0] + before[2], after[0])
            generation = slice(before[1] + before[2], after[1])
            exact = SuffixIndex.build(self.book[book], self.generation[generation]).longest_in_second
            self.bound[book] = np.minimum(self.bound[book], exact)


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
        near = [block for block in _merged(near, merge_pass, may_bridge) if block.matched >= merge_pass.min_words]
    return near


def _merged(
    blocks: Iterable[NearBlock], merge_pass: MergePass, may_bridge: Callable[[int, int], bool]
) -> list[NearBlock]:
    merged: list[NearBlock] = []
    for block in blocks:
        if (
            merged
            and _is_mergeable(merged[-1], block, merge_pass)
            and may_bridge(merged[-1].generation_end, block.generation_start)
        ):
            last = merged[-1]
            block = NearBlock(
                last.book_start,
                block.book_end,
                last.generation_start,
                block.generation_end,
                last.matched + block.matched,
            )
            merged[-1] = block
        else:
            merged.append(block)
    return merged


def _is_mergeable(left: NearBlock, right: NearBlock, merge_pass: MergePass) -> bool:
    book_gap = right.book_start - left.book_end
    generation_gap = right.generation_start - left.generation_end
    is_near = max(book_gap, generation_gap) <= merge_pass.max_gap
    return is_near and abs(book_gap - generation_gap) <= merge_pass.max_misalignment
