"""From verbatim blocks to near-verbatim blocks: merge neighbours across small gaps, drop what stays short."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rote.longform.blocks import Block
from rote.options import Settled, required


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

    `may_bridge` says whether a merge may reach across the generation's words [start, end).
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
