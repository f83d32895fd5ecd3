"""Pairs as tokens: the tokens of prefix + suffix, cut at the boundary, and a word where the boundary is not clean."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.corpus.pairs import JoinedPair, join_pairs, require_both_sides
from byrote.errors import TextError
from byrote.models.tokenizer import Tokenizing
from tests.corpus.toy_tokenizers import ByteTokenizer
from tests.models.tokenizer_kinds import KINDS, WRITES_EVERYTHING_BACK, byte_level_bpe

words = st.lists(st.sampled_from(["the", "cat", " sat", "mat ", "é", " </s>", "12"]), min_size=1, max_size=5).map(
    "".join
)


@cache
def tokenizer_of(kind: str) -> Tokenizing:
    return Tokenizing(KINDS[kind](), "it")


def join(kind: str, prefix: str, suffix: str) -> JoinedPair:
    (joined,) = join_pairs([(prefix, suffix)], tokenizer_of(kind))
    return joined


@pytest.mark.parametrize("kind", KINDS)
@given(prefix=words, suffix=words)
@settings(deadline=None)
def test_a_pair_has_the_tokens_of_the_whole_text_cut_once(kind: str, prefix: str, suffix: str) -> None:
    joined = join(kind, prefix, suffix)
    (whole,) = tokenizer_of(kind).encode_batch([prefix + suffix])
    assert [*joined.prefix_ids, *joined.suffix_ids] == whole.ids
    cut = len(joined.prefix_ids)
    # Nothing of the suffix is given away with the prefix, and no token that could be given is held back.
    assert all(end <= len(prefix) for _, end in whole.spans[:cut])
    assert all(end > len(prefix) for _, end in whole.spans[cut : cut + 1])
    assert (
        joined.suffix_char_start <= len(prefix) or not joined.suffix_ids or not (prefix + suffix)[len(prefix)].strip()
    )


@pytest.mark.parametrize("kind", WRITES_EVERYTHING_BACK)
@given(prefix=words, suffix=words)
@settings(deadline=None)
def test_a_clean_boundary_leaves_each_side_its_own_text(kind: str, prefix: str, suffix: str) -> None:
    joined = join(kind, prefix, suffix)
    alone = tokenizer_of(kind).encode_batch([prefix])[0].ids
    assert joined.is_clean == (list(joined.prefix_ids) == alone)
    if joined.is_clean:
        assert joined.suffix_char_start == len(prefix)
    if joined.suffix_char_start < len(prefix):
        assert not joined.is_clean


@pytest.mark.parametrize("trims_offsets", [False, True])
def test_a_blank_that_the_tokenizer_joins_to_the_suffix_is_not_clean(trims_offsets: bool) -> None:
    tokenizer = Tokenizing(byte_level_bpe(trims_offsets=trims_offsets), "it")
    blank_before, blank_behind = join_pairs([("the cat ", "sat"), ("the cat", " sat")], tokenizer)
    assert blank_before.suffix_ids == blank_behind.suffix_ids
    assert (blank_before.is_clean, blank_behind.is_clean) == (False, True)


def test_a_word_that_the_boundary_splits_belongs_to_the_suffix_whole() -> None:
    joined = join("word_level", "the c", "at sat")
    assert not joined.is_clean
    assert len(joined.prefix_ids) == 1
    assert joined.suffix_char_start == 4


def test_the_suffix_does_not_begin_like_a_text_of_its_own() -> None:
    joined = join("unigram", "the ca", "t sat")
    apart = tokenizer_of("unigram").encode_batch(["t sat"])[0].ids
    assert list(joined.suffix_ids) != apart
    assert joined.suffix_ids[0] != apart[0]


def test_sides_without_tokens_are_refused_by_place() -> None:
    (no_suffix,) = join_pairs([("the cat", " ")], tokenizer_of("word_piece"))
    with pytest.raises(TextError, match=r"pairs\.jsonl:3: the suffix has no token"):
        require_both_sides(no_suffix, "pairs.jsonl:3", bos_id=None)
    merged = join("word_level", "ca", "t sat")
    with pytest.raises(TextError, match=r"pairs\.jsonl:4: the first token already reaches into the suffix"):
        require_both_sides(merged, "pairs.jsonl:4", bos_id=None)
    require_both_sides(merged, "pairs.jsonl:4", bos_id=1)


def test_a_character_of_several_tokens_stays_whole_on_its_side() -> None:
    (joined,) = join_pairs([("é", "漢")], ByteTokenizer())
    assert (bytes(joined.prefix_ids).decode(), bytes(joined.suffix_ids).decode()) == ("é", "漢")
