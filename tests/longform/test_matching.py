"""Matching blocks are difflib's, and the merge rule joins only neighbours."""

import difflib
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.longform import matching
from byrote.longform.matching import Block, MergePass, NearBlock, matching_blocks, near_verbatim_blocks
from byrote.longform.recall import longest_common_run


def difflib_blocks(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int, int]]:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return [tuple(block) for block in matcher.get_matching_blocks()][:-1]


def assert_blocks_are_difflibs(first: Sequence[str], second: Sequence[str]) -> None:
    """However much of the work is left to difflib itself."""
    for small_area in (0, 30, 2_500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matching, "_SMALL_AREA", small_area)
            assert matching_blocks(first, second) == difflib_blocks(first, second)


def longest_from_each_position(first: Sequence[str], second: Sequence[str]) -> list[int]:
    def common(i: int, j: int) -> int:
        length = 0
        while i + length < len(first) and j + length < len(second) and first[i + length] == second[j + length]:
            length += 1
        return length

    return [max((common(i, j) for j in range(len(second))), default=0) for i in range(len(first))]


few_words = st.lists(st.sampled_from("ab"), max_size=40)
some_words = st.lists(st.sampled_from("abcdefgh"), max_size=60)
repeated_phrases = st.lists(st.sampled_from(["a b a b", "c", "a b c", "d d d"]), max_size=12).map(
    lambda phrases: " ".join(phrases).split()
)


@given(first=few_words, second=few_words)
@example(first=[], second=[])
@example(first=list("aaaa"), second=[])
@example(first=[], second=list("b"))
@example(first=list("abab"), second=list("baba"))
@settings(max_examples=300, deadline=None)
def test_blocks_equal_difflib_when_almost_everything_ties(first: list[str], second: list[str]) -> None:
    assert_blocks_are_difflibs(first, second)


@given(first=some_words, second=some_words)
@settings(max_examples=300, deadline=None)
def test_blocks_equal_difflib_on_random_words(first: list[str], second: list[str]) -> None:
    assert_blocks_are_difflibs(first, second)


@given(first=repeated_phrases, second=repeated_phrases)
@settings(max_examples=200, deadline=None)
def test_blocks_equal_difflib_on_repeated_phrases(first: list[str], second: list[str]) -> None:
    assert_blocks_are_difflibs(first, second)


@given(seed=st.integers(0, 2**32), words=st.integers(50, 400), cut=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_blocks_equal_difflib_on_damaged_and_moved_copies(seed: int, words: int, cut: float) -> None:
    rng = random.Random(seed)
    book = [f"w{int(rng.paretovariate(0.8)) % 200}" for _ in range(words)]
    copy = [word if rng.random() > 0.05 else "damage" for word in book if rng.random() > 0.02]
    at = int(cut * len(copy))
    assert_blocks_are_difflibs(book, copy[at:] + copy[:at])


@given(first=few_words, second=few_words)
@settings(max_examples=150, deadline=None)
def test_longest_common_run_is_the_longest_over_all_positions(first: list[str], second: list[str]) -> None:
    assert longest_common_run(first, second) == max(longest_from_each_position(first, second), default=0)


def test_items_that_compare_equal_match_whatever_their_type() -> None:
    assert matching_blocks([1, "x"], [1.0, "x"]) == [(0, 0, 2)]


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
