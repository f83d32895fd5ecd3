"""Whatever a text holds, what is shown of it does not act on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.printable import printable

ACTING = ("Cc", "Cs", "Zl", "Zp")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, é, 漢字, 👩‍🚀, می‌خواهم", "plain words, é, 漢字, 👩‍🚀, می‌خواهم"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 back\x08 nul\x00", "bell\\x07 back\\x08 nul\\x00"),
        ("csi \x9b2J", "csi \\x9b2J"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("txt.\u202egnp", "txt.\\u202egnp"),
        ("isolate \u2066 \u2069 mark \u200f", "isolate \\u2066 \\u2069 mark \\u200f"),
        ("half \ud83d", "half \\ud83d"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("\ufeffmark", "\\ufeffmark"),
        ("a variant of 葛\U000e0100", "a variant of 葛\U000e0100"),
    ],
)
def test_what_acts_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_kept_characters_stay() -> None:
    assert printable("a\n\x1b", keep="\n") == "a\n\\x1b"


@given(st.text(alphabet=st.characters(), max_size=50))
def test_nothing_that_acts_is_left_and_doing_it_twice_is_doing_it_once(text: str) -> None:
    shown = printable(text)
    assert not [character for character in shown if unicodedata.category(character) in ACTING]
    assert not [
        character for character in shown if unicodedata.bidirectional(character) in ("LRO", "RLO", "LRE", "RLE")
    ]
    assert printable(shown) == shown


@given(st.text(alphabet=st.characters(categories=["L", "M", "N", "P", "S"]), max_size=50))
def test_letters_marks_and_signs_are_left_alone(text: str) -> None:
    assert printable(text) == text
