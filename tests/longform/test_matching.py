"""Matching blocks are difflib's, and the merge rule joins only neighbours."""

import difflib
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError
from byrote.longform import matching as blocks_module
from byrote.longform.matching import (
    Block,
    MergePass,
    NearBlock,
    SuffixIndex,
    matching_blocks,
    near_verbatim_blocks,
    shared_ids,
)
from byrote.longform.recall import longest_common_run


def difflib_blocks(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int, int]]:
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return [tuple(block) for block in matcher.get_matching_blocks()][:-1]


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
    assert matching_blocks(first, second) == difflib_blocks(first, second)


@given(first=some_words, second=some_words)
@settings(max_examples=300, deadline=None)
def test_blocks_equal_difflib_on_random_words(first: list[str], second: list[str]) -> None:
    assert matching_blocks(first, second) == difflib_blocks(first, second)


@given(first=repeated_phrases, second=repeated_phrases)
@settings(max_examples=200, deadline=None)
def test_blocks_equal_difflib_on_repeated_phrases(first: list[str], second: list[str]) -> None:
    assert matching_blocks(first, second) == difflib_blocks(first, second)


@given(seed=st.integers(0, 2**32), words=st.integers(50, 400), cut=st.floats(0, 1), refresh_after=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_blocks_equal_difflib_on_damaged_and_moved_copies(
    seed: int, words: int, cut: float, refresh_after: int
) -> None:
    """Refreshing the bounds early or late may cost time but never changes a block."""
    rng = random.Random(seed)
    book = [f"w{int(rng.paretovariate(0.8)) % 200}" for _ in range(words)]
    copy = [word if rng.random() > 0.05 else "damage" for word in book if rng.random() > 0.02]
    at = int(cut * len(copy))
    copy = copy[at:] + copy[:at]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_REFRESH_AFTER_EMPTY_LEVELS", refresh_after)
        assert matching_blocks(book, copy) == difflib_blocks(book, copy)


def test_a_long_moved_passage_is_worked_off_by_refreshing(monkeypatch: pytest.MonkeyPatch) -> None:
    book = [f"a{n}" for n in range(300)] + [f"b{n}" for n in range(200)]
    generation = book[300:] + book[:300] + [f"other{n}" for n in range(250)]
    builds = count_calls(monkeypatch)
    assert matching_blocks(book, generation) == difflib_blocks(book, generation) == [(0, 200, 300)]
    assert builds() == 2, "the index of the whole and one refresh of the rectangle that holds the moved passage"


def count_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls = []
    build = SuffixIndex.build

    def counted(*arguments: object) -> SuffixIndex:
        calls.append(arguments)
        return build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SuffixIndex, "build", counted)
    return lambda: len(calls)


@given(first=some_words, second=some_words)
@settings(max_examples=150, deadline=None)
def test_matching_statistics_equal_the_quadratic_definition(first: list[str], second: list[str]) -> None:
    index = SuffixIndex.build(*shared_ids(first, second))
    assert index.longest_in_second.tolist() == longest_from_each_position(first, second)


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
