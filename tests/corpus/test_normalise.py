"""Normalisation of typography: each rule by example, all of them and the way back to the original by property."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.corpus.normalise import _PUNCTUATION, _trace, normalised_words

awkward = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab_. …‘’“”–—―\u0301\u0331\u0345İHΣ´ﬁ\u00a0\u3000\n＿′″‐가각ᄀ1"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=30,
)


def normalise(text: str) -> str:
    return _trace(text).text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("ﬁnd Ｗｉｄｅ", "find wide"),
        ("‘one’ ‚two‛ “three” „four‟ «five»", '\'one\' \'two\' "three" "four" "five"'),
        ("a–b a―b a‒b a—b", "a—b a—b a—b a—b"),
        ("well‑known co‐operate plain-hyphen", "well-known co-operate plain-hyphen"),
        ("wait…", "wait..."),
        ("wait. . . what", "wait... what"),
        ("wait . . . . what", "wait ... what"),
        ("wait.... what", "wait.... what"),
        ("wait....what", "wait.... what"),
        ("wait. .. what", "wait. .. what"),
        ("wait .. . what", "wait .. . what"),
        ("`one' ``two''", "'one' ''two''"),
        ("wait…what ...2", "wait... what ... 2"),
        ("wait...'what", "wait...'what"),
        ("end.\n...next", "end.\n... next"),
        ("two.. dots", "two.. dots"),
        ("_like this_ and _that_", "like this and that"),
        ("__bold__", "_bold_"),
        ("_one_two_", "onetwo_"),
        ("snake_case", "snake_case"),
        ("_..._word", "...word"),
        ("ALL Caps", "all caps"),
        ("H\u0331", "h\u0331"),
        ("keep   spaces\n\nand lines", "keep   spaces\n\nand lines"),
        ("", ""),
    ],
)
def test_rule(raw: str, expected: str) -> None:
    assert normalise(raw) == expected


@given(awkward)
@settings(max_examples=1000, deadline=None)
def test_it_is_the_published_steps_each_once_and_in_order(text: str) -> None:
    plain = unicodedata.normalize("NFKC", text).translate(_PUNCTUATION)
    plain = re.sub(r"(?<!\.)\.(?:[ \t]+\.){2,}(?!\.)", "...", plain)
    plain = re.sub(r"\.\.\.(?=[^\W_])", "... ", plain)
    assert normalise(text) == re.sub(r"_([^_]+)_", r"\1", plain).lower()


@given(awkward)
@settings(max_examples=500, deadline=None)
def test_words_are_the_split_of_the_normalised_text_and_their_spans_are_ordered(text: str) -> None:
    words, starts, ends = normalised_words(text)
    assert list(words) == normalise(text).split()
    assert all(0 <= start < end <= len(text) for start, end in zip(starts, ends, strict=True))
    assert all(starts[n] <= starts[n + 1] and ends[n] <= ends[n + 1] for n in range(len(words) - 1))


@given(st.text(alphabet=st.characters(max_codepoint=0x24F, exclude_characters="_.", exclude_categories=["Cs"])))
@settings(max_examples=300, deadline=None)
def test_a_span_normalises_to_its_word_when_no_rule_reaches_across_words(text: str) -> None:
    words, starts, ends = normalised_words(text)
    for word, start, end in zip(words, starts.tolist(), ends.tolist(), strict=True):
        assert word in normalise(text[start:end]).split()


def test_spans_point_at_the_original_characters() -> None:
    text = "He said: “Wait…now,” _very_ softly. ﬁn"
    words, starts, ends = normalised_words(text)
    originals = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert dict(zip(words, originals, strict=True)) == {
        "he": "He",
        "said:": "said:",
        '"wait...': "“Wait…",
        'now,"': "now,”",
        "very": "very",
        "softly.": "softly.",
        "fin": "ﬁn",
    }
