"""An exact index of every shared run of words of two texts: suffix order, common-prefix lengths, matching statistics.

Built by prefix doubling in numpy: `ranks[level][p]` numbers the distinct runs of 2^level words, so equal numbers mean
equal runs, without hashing and without a chance of collision. Cost: O(n log n log L) for n words and the longest
repeated run L.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """Ranks of the runs of 1, 2, 4, … items; the last level is a permutation (every suffix told apart)."""
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
