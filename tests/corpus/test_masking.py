"""Masked text says what kind of thing stands there, never what it says."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.spans import MASK, mask_identifiers, mask_place, mask_whole


@given(st.text(max_size=60))
def test_masks_keep_length_and_leave_no_digit_and_no_second_letter(text: str) -> None:
    masked = mask_whole(text)
    assert len(masked) == len(text) == len(mask_identifiers(text))
    assert not any(character.isdecimal() for character in masked + mask_identifiers(text))
    pairs = pairwise(masked)
    assert not any(first.isalpha() and second.isalpha() for first, second in pairs)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" Foundry Hill", " F•••••• H•••"),
        ("959-481-5012", "•••-•••-••••"),
        ("ada.byron@mill.example", "a••.b••••@m•••.e••••••"),
    ],
)
def test_a_span_keeps_first_letters_and_punctuation(text: str, shown: str) -> None:
    assert mask_whole(text) == shown


@pytest.mark.parametrize(
    ("before", "text", "hidden"),
    [
        ("", "Ask Ada Byron, 959-481-5012, or write to ada.byron98@mill.example.", ["da", "yron", "959", "98", "mill"]),
        ("call 9", "59-481-5012 today", ["59", "481", "5012"]),
        ("her name is Ada", " Byron and she", ["Byron"]),
        ("", " allergies: rye. E-mail: petra.ingerso", ["etra", "ingerso"]),
        ("", "write to dorian.everhart93@", ["orian", "everhart", "93"]),
    ],
)
def test_identifiers_are_hidden_also_where_the_window_cuts_them(before: str, text: str, hidden: list[str]) -> None:
    masked = mask_identifiers(text, before=before)
    assert not [word for word in hidden if word in masked]
    assert MASK in masked


def test_other_words_stay_readable() -> None:
    assert mask_identifiers("the kettle sings and the cat sleeps") == "the kettle sings and the cat sleeps"


def test_a_place_keeps_its_numbers_and_loses_its_people() -> None:
    assert mask_place("letters/2019-04.txt@1280") == "letters/2019-04.txt@1280"
    assert mask_place("Ada Byron/ada.byron@mill.example.txt@7").startswith("A•• B••••/a••.b••••@m•••.e••••••.t••@")
