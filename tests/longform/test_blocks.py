"""The fast matching blocks against difflib, whose rule they claim to follow to the letter."""

import difflib
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byrote.longform import matching as blocks_module
from byrote.longform.matching import SuffixIndex, matching_blocks, shared_ids
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
