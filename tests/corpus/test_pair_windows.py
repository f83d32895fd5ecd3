"""Pairs as windows: whole prefixes and suffixes, positions that lead back to the words, every side its share."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.pairs import Pair, longest_of, pair_windows, with_shared_ids
from byrote.corpus.select import choose_pairs
from byrote.errors import ConfigError, TextError
from byrote.normal_form import normalised
from byrote.types import Split, Window
from tests.corpus.toy_tokenizers import ByteTokenizer


class Bytes(ByteTokenizer):
    """One token a byte, and back."""

    vocab_size = 256

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


def pair(name: str, prefix: str = "ab", suffix: str = "cd", document: str | None = None, **more: object) -> Pair:
    return Pair(name, document or name, Split.TARGET, f"file:{name}", prefix, suffix, **more)  # type: ignore[arg-type]


texts = st.text("aé漢 ", min_size=1, max_size=6)


@given(st.lists(st.tuples(texts, texts, st.sampled_from(["one", "two", None])), min_size=1, max_size=8), st.booleans())
def test_windows_hold_the_whole_pair_and_lead_back_to_its_words(
    rows: list[tuple[str, str, str | None]], has_bos: bool
) -> None:
    pairs = [pair(f"p{n}", prefix, suffix, document) for n, (prefix, suffix, document) in enumerate(rows)]
    bos_id = 0 if has_bos else None
    made = pair_windows(pairs, Bytes(), bos_id=bos_id, marked_prefix_tokens=3)
    texts_of = {document.name: document.text for document in made.documents}
    assert made.merged == 0
    for window, (prefix, suffix, document) in zip(made.windows, rows, strict=True):
        assert window.prefix_ids == ((0,) if has_bos else ()) + tuple(prefix.encode())
        assert bytes(window.suffix_ids).decode() == suffix
        text = texts_of[window.document]
        assert text[window.char_start : window.suffix_char_start] == prefix
        assert text[window.suffix_char_start : window.char_end] == suffix
        assert window.document == (document or window.window_id)
    assert longest_of(made.windows)[1] == max(len(suffix.encode()) for _, suffix, _ in rows)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_suffixes_of_text_have_tokens_of_their_own_and_lead_back_to_their_words(rows: list[tuple[str, str]]) -> None:
    pairs = [pair(f"p{n}", prefix, f"{suffix}d") for n, (prefix, suffix) in enumerate(rows)]
    made = pair_windows(pairs, Bytes(), bos_id=None, marked_prefix_tokens=3, marked_prefix_chars=4)
    texts_of = {document.name: document.text for document in made.documents}
    for window, (prefix, suffix) in zip(made.windows, rows, strict=True):
        assert window.suffix_text == f"{suffix}d"
        assert normalised(bytes(window.suffix_ids).decode()) == normalised(f"{suffix}d")
        assert bytes(window.prefix_ids + window.suffix_ids).decode() == f"{prefix}{suffix}d"
        text = texts_of[window.document]
        assert text[window.char_start : window.suffix_char_start] == prefix
        assert text[window.suffix_char_start : window.char_end] == f"{suffix}d"


def test_a_blank_at_the_boundary_is_tokenised_with_the_suffix_of_text() -> None:
    made = pair_windows(
        [pair("p", "to be ", "or not")], Bytes(), bos_id=None, marked_prefix_tokens=3, marked_prefix_chars=4
    )
    (window,) = made.windows
    assert (bytes(window.prefix_ids), bytes(window.suffix_ids)) == (b"to be", b" or not")
    assert (window.suffix_char_start, window.suffix_text) == (6, "or not")


def test_marked_suffixes_of_text_have_the_last_words_before_them() -> None:
    text = "one two three four five"
    marked = pair("m", text[:14], "four", text=text, start=14)
    (window,) = pair_windows([marked], Bytes(), bos_id=7, marked_prefix_tokens=3, marked_prefix_chars=12).windows
    assert bytes(window.prefix_ids[1:]) == b"two three"
    assert (window.char_start, window.suffix_char_start, window.char_end) == (4, 14, 18)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Pair("p", "p", Split.TARGET, "file:1", (1, 2), (3,)), "file:1 has token ids, and unit text compares"),
        (pair("p", suffix="\n "), "file:p: the suffix is blank"),
    ],
)
def test_pairs_that_are_no_text_are_refused_where_text_is_compared(given: Pair, words: str) -> None:
    with pytest.raises(TextError, match=words):
        pair_windows([given], Bytes(), bos_id=None, marked_prefix_tokens=3, marked_prefix_chars=4)


def test_token_ids_are_kept_as_they_are() -> None:
    ids = Pair("p", "p", Split.CONTROL, "file:1", tuple(b"ab"), tuple(b"cd"), copies=0, kind="k", tags=("t",))
    (window,) = pair_windows([ids], Bytes(), bos_id=None, marked_prefix_tokens=3).windows
    assert (window.prefix_ids, window.suffix_ids) == (tuple(b"ab"), tuple(b"cd"))
    assert (window.char_start, window.suffix_char_start, window.char_end) == (0, 2, 4)
    assert window.further == {"copies": 0, "kind": "k", "tags": ["t"]}


def test_marked_spans_share_their_text_and_have_a_short_prefix() -> None:
    text = "x" * 5000 + "0123456789"
    marked = [
        pair("m~1", text[:5000], "012", "m", text=text, start=5000),
        pair("m~2", text[:5005], "567", "m", text=text, start=5005),
    ]
    made = pair_windows(marked, Bytes(), bos_id=7, marked_prefix_tokens=4)
    assert [document.text for document in made.documents] == [text]
    assert [bytes(window.prefix_ids[1:]) for window in made.windows] == [b"xxx", b"234"]
    assert [text[window.suffix_char_start : window.char_end] for window in made.windows] == ["012", "567"]
    assert all(len(window.prefix_ids) == 4 for window in made.windows)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    ids = Pair("p", "p", Split.TARGET, "file:1", (1, 2), (300,))
    with pytest.raises(TextError, match="file:1 has the token id 300, but the model has 256 tokens"):
        pair_windows([ids], Bytes(), bos_id=None, marked_prefix_tokens=3)


def test_a_document_on_both_sides_is_refused() -> None:
    pairs = [pair("a", document="d"), Pair("b", "d", Split.CONTROL, "file:2", "ab", "cd")]
    with pytest.raises(TextError, match="file:2 is a control, but 'd' is not"):
        pair_windows(pairs, Bytes(), bos_id=None, marked_prefix_tokens=3)


@given(
    st.lists(st.tuples(st.sampled_from(Split), st.integers(0, 4)), min_size=1, max_size=60),
    st.integers(2, 70),
    st.sampled_from(["limit", "sample"]),
)
def test_a_choice_of_pairs_leaves_no_side_out(rows: list[tuple[Split, int]], size: int, option: str) -> None:
    pairs = [Pair(f"p{n}", f"{split}{d}", split, "", "a", "b") for n, (split, d) in enumerate(rows)]
    chosen, selection = choose_pairs(pairs, **{option: size})  # type: ignore[arg-type]
    assert [one for one in pairs if one in chosen] == chosen
    assert len(chosen) == min(size, len(pairs))
    assert len(Counter(one.split for one in chosen)) == len(Counter(one.split for one in pairs))
    assert selection.starts == Counter(one.split for one in pairs)
    assert choose_pairs(pairs)[0] == pairs


def test_a_limit_of_single_pairs_is_the_first_ones() -> None:
    pairs = [pair(f"p{n}") for n in range(20)]
    assert choose_pairs(pairs, limit=5)[0] == pairs[:5]
    assert choose_pairs(pairs, sample=5, seed=1)[0] != choose_pairs(pairs, sample=5, seed=2)[0]


def test_one_pair_cannot_be_both_sides() -> None:
    pairs = [pair("a"), Pair("b", "b", Split.CONTROL, "", "a", "b")]
    with pytest.raises(ConfigError, match="cannot hold both"):
        choose_pairs(pairs, limit=1)


window_lists = st.lists(
    st.builds(
        Window,
        st.text(max_size=4),
        st.text(max_size=4),
        st.sampled_from(Split),
        *[st.integers(0, 2**40)] * 3,
        *[st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)] * 2,
        st.fixed_dictionaries({"copies": st.none() | st.integers(0, 2), "tags": st.lists(st.sampled_from("ab"))}),
    )
)


@given(window_lists)
def test_windows_with_shared_ids_are_the_same_windows(windows: list[Window]) -> None:
    shared = list(with_shared_ids(windows))
    assert shared == windows
    assert [one.further for one in shared] == [one.further for one in windows]
    objects = {id(token) for one in shared for token in one.ids}
    assert len(objects) == len({token for one in shared for token in one.ids})


def test_a_stream_of_many_windows_is_one_document_joined_once() -> None:
    """A hundred thousand pieces: joined one by one they would be copied for minutes."""
    pieces = 100_000
    pairs = [Pair(f"s#{n}", "s", Split.TARGET, f"s, {n}", tuple(b"ab" * 20), tuple(b"cd" * 20)) for n in range(pieces)]
    made = pair_windows(pairs, Bytes(), bos_id=None, marked_prefix_tokens=3)
    (document,) = made.documents
    assert len(document.text) == pieces * 82 - 2
    last = made.windows[-1]
    assert document.text[last.char_start : last.char_end] == "ab" * 20 + "cd" * 20
