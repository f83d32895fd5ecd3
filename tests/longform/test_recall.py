"""nv-recall: invariants by property, edits and moved passages by hand."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError, TextError
from byrote.longform.matching import MergePass
from byrote.longform.recall import RecallResult, nv_recall

EVERYTHING = (MergePass(max_gap=0, max_misalignment=0, min_words=1),)


def invented_text(words: int, *, seed: int, vocabulary: str = "w") -> str:
    """Words drawn with falling frequency, so that popular words repeat as they do in prose."""
    rng = random.Random(seed)
    return " ".join(f"{vocabulary}{min(int(rng.paretovariate(0.7)), 5000)}" for _ in range(words))


def changed(text: str, edits: dict[int, str | None]) -> str:
    """The text with word n replaced by edits[n], or removed where that is None."""
    words = [edits.get(n, word) for n, word in enumerate(text.split())]
    return " ".join(word for word in words if word is not None)


words = st.lists(st.sampled_from(["one", "two", "three", "four", "five"]), max_size=80).map(" ".join)


@given(book=words.filter(bool), generation=words, minimum=st.integers(1, 6), gap=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_matched_words_never_exceed_either_text(book: str, generation: str, minimum: int, gap: int) -> None:
    result = nv_recall(book, generation, passes=[MergePass(gap, gap, minimum)])
    assert 0 <= result.matched_words <= min(result.book_words, result.generation_words)
    assert result.missing_words == len(book.split()) - result.matched_words
    assert result.additional_words == len(generation.split()) - result.matched_words
    assert result.longest_block <= result.matched_words
    assert_blocks_are_disjoint_in_the_generation(result)


def test_a_repeated_block_does_not_reach_across_a_word_that_is_taken() -> None:
    """`two` and `one` around the matched `three` are two finds, not one."""
    result = nv_recall("two one three", "two one one two three one", passes=[MergePass(1, 1, 1)])
    assert_blocks_are_disjoint_in_the_generation(result)
    assert [block.matched_words for block in result.blocks] == [2, 1]


def assert_blocks_are_disjoint_in_the_generation(result: RecallResult) -> None:
    taken: set[int] = set()
    for block in (*result.blocks, *result.out_of_order):
        span = set(range(block.generation_word_start, block.generation_word_end))
        assert not taken & span
        taken |= span


@given(book=words.filter(bool))
@settings(max_examples=50, deadline=None)
def test_a_text_recalls_itself_completely(book: str) -> None:
    result = nv_recall(book, book, passes=EVERYTHING)
    assert result.nv_recall == 1.0
    assert result.out_of_order == ()


def test_a_text_recalls_itself_completely_at_the_published_thresholds() -> None:
    text = invented_text(500, seed=1)
    assert nv_recall(text, text.upper()).nv_recall == 1.0


def test_an_unrelated_text_scores_zero() -> None:
    result = nv_recall(invented_text(5000, seed=1), invented_text(5000, seed=2))
    assert (result.matched_words, result.nv_recall, result.longest_block) == (0, 0.0, 0)
    assert (result.missing_words, result.additional_words) == (5000, 5000)
    assert result.blocks == result.out_of_order == ()


@pytest.mark.parametrize(
    ("edits", "matched"),
    [
        pytest.param({100: "changed"}, 299, id="substitution"),
        pytest.param({100: None}, 299, id="deletion"),
        pytest.param({100: "first second"}, 299, id="one word became two"),
        pytest.param({n: "changed" for n in range(100, 110)}, 290, id="ten words changed: bridged by the second pass"),
        pytest.param({n: "changed" for n in range(100, 111)}, 289, id="eleven words changed: two blocks"),
        pytest.param({n: "changed" for n in range(90, 190)}, 110, id="what is left of the gap is too short to count"),
    ],
)
def test_small_changes_cost_only_the_changed_words(edits: dict[int, str | None], matched: int) -> None:
    book = " ".join(f"word{n}" for n in range(300))
    assert nv_recall(book, changed(book, edits)).matched_words == matched


def test_a_moved_passage_is_reported_apart_and_not_counted() -> None:
    first, second = (" ".join(f"{name}{n}" for n in range(size)) for name, size in (("a", 400), ("b", 150)))
    result = nv_recall(f"{first} {second}", f"{second} {first}")
    assert result.matched_words == 400
    assert [
        (b.placement, b.matched_words, b.book_word_start, b.generation_word_start) for b in result.out_of_order
    ] == [("moved", 150, 400, 0)]


def test_a_passage_said_three_times_is_found_three_times() -> None:
    passage = " ".join(f"a{n}" for n in range(120))
    result = nv_recall(f"{passage} tail", f"{passage} x {passage} y {passage}")
    assert result.matched_words == 120
    assert [block.placement for block in result.out_of_order] == ["duplicated"] * 2
    assert sorted(b.generation_word_start for b in (*result.blocks, *result.out_of_order)) == [0, 121, 242]


def test_repeated_passes_can_be_limited_or_switched_off() -> None:
    passage = " ".join(f"a{n}" for n in range(120))
    generation = " x ".join([passage] * 4)
    assert nv_recall(passage, generation, repeated_passes=0).out_of_order == ()
    assert len(nv_recall(passage, generation, repeated_passes=2).out_of_order) == 2
    with pytest.raises(ConfigError, match="repeated_passes is -1"):
        nv_recall(passage, generation, repeated_passes=-1)


def test_a_repeated_pass_does_not_join_what_a_counted_block_keeps_apart() -> None:
    """The halves of `second` stand around `first` in the generation: never one run, so neither half is long enough."""
    first, second = ([f"{name}{n}" for n in range(size)] for name, size in (("a", 400), ("b", 150)))
    generation = second[:75] + first + second[75:]
    result = nv_recall(" ".join(second + first), " ".join(generation), passes=[MergePass(2, 1, 100)])
    assert result.matched_words == 400
    assert result.out_of_order == ()


def test_character_positions_lead_back_to_the_original_texts() -> None:
    passage = " ".join(f"“Wait…{n}” _she_ said" for n in range(60))
    book, generation = f"Preface — never said. {passage} END", f"Sure! {passage}"
    (block,) = nv_recall(book, generation).blocks
    assert book[block.book_char_start : block.book_char_end].strip("_") == passage
    assert generation[block.generation_char_start : block.generation_char_end] == passage


def test_an_empty_generation_misses_everything_and_an_empty_book_is_refused() -> None:
    assert nv_recall("some words here", "").missing_words == 3
    with pytest.raises(TextError, match="The book has no words"):
        nv_recall(" \n", "something")
