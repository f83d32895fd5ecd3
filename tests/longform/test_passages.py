"""Book and answer side by side: every word once, across from its counterpart; nothing that differs is folded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.longform.matching import MergePass
from byrote.longform.passages import (
    ROW_WORDS,
    SHORTEST_FOLD_ROWS,
    ComparedRow,
    SpanTexts,
    TextPair,
    block_spans,
    folded,
    rows,
)
from byrote.longform.recall import nv_recall

WORDS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=120)
PASSES = (MergePass(max_gap=3, max_misalignment=2, min_words=2),)


def edited(words: list[str], cuts: list[int]) -> list[str]:
    """The words with some left out and some added, at places that `cuts` gives."""
    said = list(words)
    for cut in cuts:
        place = cut % max(1, len(said))
        said = said[:place] + said[place + 1 :] if cut % 2 else [*said[:place], "z", *said[place:]]
    return said


@given(words=WORDS, cuts=st.lists(st.integers(0, 500), max_size=8))
@settings(max_examples=150, deadline=None)
def test_rows_hold_every_word_of_a_passage_once_and_in_order(words: list[str], cuts: list[int]) -> None:
    book, answer = " ".join(words), "  ".join(edited(words, cuts))
    result = nv_recall(book, answer, passes=PASSES)
    pair = TextPair(book, answer)
    for block in result.blocks:
        spans = block_spans(result, block)
        shown = rows(pair, spans)
        pieces = [piece for row in shown for piece in row.pieces]
        said = " ".join(piece.answer for piece in pieces).split()
        assert " ".join(piece.book for piece in pieces).split() == words[block.book_word_start : block.book_word_end]
        assert said == answer.split()[block.generation_word_start : block.generation_word_end]
        assert all(piece.book.split() == piece.answer.split() for piece in pieces if piece.is_same)
        assert sum(len(piece.book.split()) for piece in pieces if piece.is_same) == block.matched_words
        assert all(row.words >= ROW_WORDS for row in shown[:-1])
        stretches = folded(shown)
        assert [row for stretch in stretches for row in stretch.rows] == shown
        assert all(row.is_same for stretch in stretches if stretch.is_folded for row in stretch.rows)


def row(is_same: bool) -> ComparedRow:
    return ComparedRow((SpanTexts("a", "a" if is_same else "b", is_same),), 1)


def test_only_the_inside_of_a_long_stretch_of_same_rows_is_folded() -> None:
    long, short = SHORTEST_FOLD_ROWS + 2, SHORTEST_FOLD_ROWS - 1
    stretches = folded([*[row(True)] * long, row(False), *[row(True)] * short, row(False), *[row(True)] * long])
    assert [(stretch.is_folded, len(stretch.rows)) for stretch in stretches] == [
        (False, 1),
        (True, long - 2),
        (False, 1 + 1 + short + 1 + 1),
        (True, long - 2),
        (False, 1),
    ]
    assert folded([]) == ()


def test_texts_are_shown_as_they_are_written() -> None:
    book, answer = "“One” Two – three…  four", '"one" two — three... four'
    result = nv_recall(book, answer, passes=PASSES)
    (block,) = result.blocks
    (only,) = rows(TextPair(book, answer), block_spans(result, block))
    assert only.pieces == (SpanTexts("“One” Two – three…  four", '"one" two — three... four', True),)
