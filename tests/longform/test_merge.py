"""The merge rule on hand-made blocks."""

import pytest

from byrote.errors import ConfigError
from byrote.longform.matching import Block, MergePass, NearBlock, near_verbatim_blocks

STRICT = MergePass(max_gap=2, max_misalignment=1, min_words=0)


@pytest.mark.parametrize(
    ("right", "is_merged"),
    [
        pytest.param(Block(11, 11, 5), True, id="substitution of one word"),
        pytest.param(Block(10, 11, 5), True, id="insertion of one word"),
        pytest.param(Block(11, 10, 5), True, id="deletion of one word"),
        pytest.param(Block(12, 12, 5), True, id="both gaps at the limit"),
        pytest.param(Block(13, 12, 5), False, id="book gap past the limit"),
        pytest.param(Block(12, 13, 5), False, id="generation gap past the limit"),
        pytest.param(Block(10, 12, 5), False, id="gaps differ by more than the alignment allows"),
    ],
)
def test_neighbours_merge_only_across_small_and_similar_gaps(right: Block, is_merged: bool) -> None:
    near = near_verbatim_blocks([Block(0, 0, 10), right], [STRICT])
    if is_merged:
        assert near == [NearBlock(0, right.book_start + 5, 0, right.generation_start + 5, 15)]
    else:
        assert [block.matched for block in near] == [10, 5]


def test_a_merged_block_counts_only_matched_words() -> None:
    near = near_verbatim_blocks([Block(0, 0, 60), Block(62, 62, 60)], [STRICT])
    assert near[0].matched == 120
    assert near[0].book_end - near[0].book_start == 122


def test_merging_chains_and_gaps_are_measured_from_the_end_of_the_merged_span() -> None:
    near = near_verbatim_blocks([Block(0, 0, 5), Block(6, 6, 5), Block(13, 13, 5)], [STRICT])
    assert near == [NearBlock(0, 18, 0, 18, 15)]


def test_short_blocks_are_dropped_between_the_passes() -> None:
    """The middle block is too short after pass 1; without it the outer two are too far apart for pass 2."""
    blocks = [Block(0, 0, 90), Block(100, 100, 10), Block(115, 115, 90)]
    passes = [MergePass(max_gap=2, max_misalignment=1, min_words=20), MergePass(10, 3, 100)]
    assert near_verbatim_blocks(blocks, passes) == []
    tolerant = [MergePass(max_gap=2, max_misalignment=1, min_words=10), MergePass(15, 3, 100)]
    assert [block.matched for block in near_verbatim_blocks(blocks, tolerant)] == [190]


def test_published_passes_are_the_default() -> None:
    assert near_verbatim_blocks([Block(0, 0, 99)]) == []
    assert [block.matched for block in near_verbatim_blocks([Block(0, 0, 100)])] == [100]
    assert [block.matched for block in near_verbatim_blocks([Block(0, 0, 50), Block(60, 57, 50)])] == [100]
    assert near_verbatim_blocks([Block(0, 0, 50), Block(60, 56, 50)]) == []


def test_a_negative_threshold_is_refused_with_its_value() -> None:
    with pytest.raises(ConfigError, match="max-gap is -1"):
        MergePass(max_gap=-1, max_misalignment=0, min_words=0)
