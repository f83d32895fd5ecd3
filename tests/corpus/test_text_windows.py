"""Windows of characters: word ends, scripts without blanks, marks, short ends, and tokens that begin at the cut."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.read import Document
from byrote.corpus.text_windows import TextWindowOptions, cut_text_starts, places_at
from byrote.corpus.windows import ShortWindow, WindowStart
from byrote.models.tokenizer import Tokenizing
from byrote.normal_form import normalised
from byrote.types import Split, Window
from tests.models.tokenizer_kinds import byte_level_bpe, metaspace_bpe

OPTIONS = TextWindowOptions(prefix_chars=20, suffix_chars=30, stride_chars=10)


@given(
    st.lists(st.sampled_from(["a", "to", "cat,", "—", "naïve", "letters"]), min_size=30, max_size=60),
    st.integers(0, 60),
)
def test_windows_are_the_most_whole_words_that_fit(words: list[str], start: int) -> None:
    """The slow version: ends of words by adding up their lengths."""
    text = " ".join(words)
    ends = list(accumulate((len(word) + 1 for word in words), initial=-1))[1:]
    starts = [end - len(word) for end, word in zip(ends, words, strict=True)]
    span = places_at(text, start, OPTIONS)
    first = next(place for place in starts if place >= start)
    cut = max(end for end in ends if end <= first + 20)
    end = max(end for end in ends if end <= cut + 30)
    if first + 50 > len(text) or len(normalised(text[cut:end])) < 15:
        assert span is None
    else:
        assert span == (first, cut, end)


def test_scripts_without_blanks_are_cut_at_characters_but_not_before_a_mark() -> None:
    text = "漢字" * 9 + "e\u0301" * 20 + "字" * 40
    assert places_at(text, 3, OPTIONS) == (3, 22, 52)
    assert text[23] == "\u0301" or text[22] == "e"


def test_ends_that_are_too_short_and_targets_of_blanks_are_no_windows() -> None:
    assert places_at("word " * 10, 1, OPTIONS) is None
    assert places_at("word " * 4 + " " * 40 + "word " * 20, 0, OPTIONS) is None
    document = Document.from_text("short.txt", "word " * 9, split=Split.TARGET)
    (cut,) = cut_text_starts([WindowStart(document, 0)], Tokenizing(byte_level_bpe(), "tiny"), OPTIONS, bos_id=None)
    assert cut == ShortWindow("short.txt", 0, 45)


@pytest.mark.parametrize("make", [byte_level_bpe, metaspace_bpe])
def test_tokens_of_prefix_and_target_are_those_of_the_text(make: Callable[[], Any]) -> None:
    tokenizing = Tokenizing(make(), "tiny")
    text = "the cat sat on the mat, and more text may say words and the cat sat on it " * 3
    document = Document.from_text("cats.txt", text, split=Split.TARGET)
    starts = [WindowStart(document, place) for place in range(0, 100, 7)]
    windows = list(cut_text_starts(starts, tokenizing, OPTIONS, bos_id=None))
    for window in windows:
        assert isinstance(window, Window)
        start, cut, end = places_at(text, window.char_start, OPTIONS) or ()
        assert (window.suffix_char_start, window.char_end) == (cut, end)
        assert window.suffix_text == text[cut:end]
        assert normalised(tokenizing.decode(window.prefix_ids)) == text[start:cut]
        assert normalised(tokenizing.decode(window.suffix_ids)) == normalised(text[cut:end])
        together = tokenizing.encode_batch([text[start:end]])[0].ids
        assert [*window.prefix_ids, *window.suffix_ids] == together
