"""Matching blocks of two word lists: exactly those of difflib's SequenceMatcher with autojunk off, much faster.

difflib takes the longest common run of a rectangle (earliest in the first list, then earliest in the second), and
repeats on the rectangles to its upper left and lower right. Here every position of the first list carries an upper
bound on the longest run that starts there inside its rectangle. Levels are worked off from the largest bound down:
when the largest bound anywhere is k, the candidates with bound k are visited from left to right, and the first one of
a rectangle whose run of k words occurs inside the rectangle is by construction difflib's choice. A candidate that
fails gets the next smaller bound that is still possible. No pair of popular words is ever enumerated.
"""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rote.longform.suffixes import Integers, SuffixIndex, shared_ids

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


class _Candidates(NamedTuple):
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

    def where(self, keep: NDArray[np.bool_]) -> "_Candidates":
        return _Candidates(*(column[keep] for column in self))


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

    def _candidates(self, level: int) -> _Candidates:
        position = np.flatnonzero(self.bound == level)
        rectangle = np.searchsorted(self.blocks[:, 0], position)
        ends = np.concatenate([[[0, 0]], self.blocks[:, :2] + self.blocks[:, 2:]])
        starts = np.concatenate([self.blocks[:, :2], [[len(self.book), len(self.generation)]]])
        group_starts = np.flatnonzero(self.index.common < level)
        group = np.searchsorted(group_starts, self.index.slot_of_first[position], side="right")
        return _Candidates(
            position=position,
            rectangle=rectangle,
            book_high=starts[rectangle, 0],
            generation_low=ends[rectangle, 1],
            generation_high=starts[rectangle, 1],
            slot_low=group_starts[group - 1],
            slot_high=np.append(group_starts, len(self.index.common))[group],
        )

    def _visit(self, candidates: _Candidates, level: int) -> list[Block]:
        """The blocks of this level, left to right; every candidate's bound is below `level` afterwards."""
        room = np.minimum(
            candidates.book_high - candidates.position, candidates.generation_high - candidates.generation_low
        )
        self.bound[candidates.position] = np.minimum(room, level - 1)
        fitting = candidates.where(room >= level)
        if len(fitting.position) == 0:
            return []
        occurrences = self._occurrences(fitting)
        first = self._first_occurrence(fitting, occurrences)
        shorter = self._next_bound(fitting, first, level)
        self.bound[fitting.position] = shorter
        hits = first + level <= fitting.generation_high
        return self._scan(fitting.where(hits), first[hits], occurrences._replace(group=occurrences.group[hits]), level)

    def _occurrences(self, candidates: _Candidates) -> _Occurrences:
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

    def _first_occurrence(self, candidates: _Candidates, occurrences: _Occurrences) -> Integers:
        """The first start of the run in the generation inside the rectangle; the generation's length if none."""
        keys = np.array([*occurrences.keys, np.iinfo(np.int64).max])
        at = keys[np.searchsorted(keys, occurrences.group * occurrences.stride + candidates.generation_low)]
        return np.where(at // occurrences.stride == occurrences.group, at % occurrences.stride, len(self.generation))

    def _next_bound(self, candidates: _Candidates, first: Integers, level: int) -> Integers:
        """The longest shorter run that is still possible.

        Either a shorter run has more occurrences, which begins at the common length with the group's neighbours;
        or a known occurrence that overhangs the rectangle fits when it is cut there.
        """
        common = np.append(self.index.common, 0)
        wider_group = np.maximum(common[candidates.slot_low], common[candidates.slot_high])
        shorter: Integers = np.minimum(np.maximum(wider_group, candidates.generation_high - first), level - 1)
        return shorter

    def _scan(self, hits: _Candidates, first: Integers, occurrences: _Occurrences, level: int) -> list[Block]:
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

    def _refresh(self, candidates: _Candidates) -> None:
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
