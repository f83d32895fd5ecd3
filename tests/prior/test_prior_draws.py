"""Draws from the reference corpus, and the calibration of n on generic texts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.corpus.documents import Document
from rote.errors import ConfigError, TextError, WindowError
from rote.prior.calibration import EXACT_LENGTHS, GenericPair, calibrate, calibration_length, generic_pairs
from rote.prior.draws import DrawnPrefixes, draw_prefixes, shorten
from rote.prior.run import read_generic
from rote.types import Split
from tests.corpus.toy_tokenizers import ByteTokenizer


def documents(*texts: str) -> list[Document]:
    return [Document.from_text(f"{place}.txt", text, split=Split.CONTROL) for place, text in enumerate(texts)]


def draw(corpus: list[Document], **changes: object) -> DrawnPrefixes:
    settings: dict[str, object] = {
        "prefix_tokens": 4,
        "stride_chars": 1,
        "bos_id": None,
        "draws": 50,
        "trials": 3,
        "seed": 0,
        **changes,
    }
    return draw_prefixes(corpus, ByteTokenizer(), **settings)  # type: ignore[arg-type]


def possible(corpus: list[Document], tokens: int) -> list[tuple[int, ...]]:
    """Every prefix that has at least one token after it, one entry a start."""
    texts = [document.text.encode() for document in corpus]
    return [tuple(text[start : start + tokens]) for text in texts for start in range(len(text) - tokens)]


@given(st.lists(st.text(alphabet="abc", min_size=5, max_size=30), min_size=1, max_size=4), st.integers(0, 99))
def test_every_trial_has_its_draws_and_every_draw_is_of_the_corpus(texts: list[str], seed: int) -> None:
    corpus = documents(*texts)
    drawn = draw(corpus, seed=seed)
    assert drawn.counts.sum(axis=0).tolist() == [50, 50, 50]
    assert len(set(drawn.prefixes)) == len(drawn.prefixes)
    assert set(drawn.prefixes) <= set(possible(corpus, 4))


def test_draws_are_uniform_over_the_starts_that_are_long_enough() -> None:
    corpus = documents("abcdefghij", "klmnopq", "xyz")
    drawn = draw(corpus, draws=9000, trials=1)
    starts = possible(corpus, 4)
    assert len(starts) == 9
    found = dict(zip(drawn.prefixes, drawn.counts[:, 0], strict=True))
    # 9,000 draws over 9 starts: 1,000 ± 30 each; 5 standard deviations, seeded.
    assert all(abs(found[prefix] - 1000) < 150 for prefix in starts)


def test_a_corpus_of_mostly_short_documents_is_listed_and_still_uniform() -> None:
    corpus = documents(*["abc"] * 200, "defghijk")
    drawn = draw(corpus, draws=4000, trials=1)
    assert set(drawn.prefixes) == set(possible(corpus[-1:], 4))
    assert abs(drawn.counts[:, 0] - 1000).max() < 150


def test_the_same_seed_draws_the_same_prefixes() -> None:
    corpus = documents("the quick brown fox", "jumps over the dog")
    first, again, other = (draw(corpus, seed=seed) for seed in (4, 4, 5))
    assert first.prefixes == again.prefixes
    assert np.array_equal(first.counts, again.counts)
    assert first.prefixes != other.prefixes or not np.array_equal(first.counts, other.counts)


def test_a_corpus_without_a_whole_prefix_is_refused() -> None:
    with pytest.raises(WindowError, match="tokens"):
        draw(documents("abc", "de"))


def test_shortened_draws_merge_equal_prefixes_and_keep_their_counts() -> None:
    drawn = DrawnPrefixes(((1, 7, 8), (2, 7, 8), (3, 9, 9)), np.array([[1], [2], [4]]))
    shorter = drawn.shortened(2, None)
    assert shorter.prefixes == ((7, 8), (9, 9))
    assert shorter.counts[:, 0].tolist() == [3, 4]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12))
def test_shortening_keeps_the_end_and_a_leading_bos(tail: list[int], tokens: int) -> None:
    assert shorten(tail, tokens, None) == tuple(tail[-tokens:])
    with_bos = shorten([0, *tail], tokens, 0)
    assert with_bos[0] == 0
    assert len(with_bos) == min(tokens, len(tail) + 1)
    assert tuple(tail)[len(tail) - len(with_bos) + 1 :] == with_bos[1:]


@given(st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=40), min_size=3, max_size=8), st.integers(1, 30))
def test_generic_texts_are_split_in_equal_halves(texts: list[list[int]], suffix_tokens: int) -> None:
    pairs = generic_pairs(texts, suffix_tokens)
    assert len(pairs) >= 3
    halves = {len(pair.prefix_ids) for pair in pairs} | {len(pair.suffix_ids) for pair in pairs}
    assert len(halves) == 1
    half = halves.pop()
    assert half <= suffix_tokens
    if sum(len(text) >= 2 * suffix_tokens for text in texts) >= 3:
        assert half == suffix_tokens
    for pair in pairs:
        assert list(pair.prefix_ids + pair.suffix_ids) in [text[: 2 * half] for text in texts]


@pytest.mark.parametrize("texts", [[[1, 2]] * 2, [[1, 2], [1, 2], [1]]])
def test_too_few_generic_texts_are_refused(texts: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="too few or too short"):
        generic_pairs(texts, 4)


def test_n_is_the_arithmetic_mean_of_the_ratios_and_keeps_the_geometric_one_beside_it() -> None:
    pairs = [GenericPair((1,), (2,))] * 2
    found = calibrate(1, pairs, [math.log(2.0), math.log(8.0)])
    assert math.exp(found.log_least_ratio) == pytest.approx(5.0)
    assert found.log_geometric_mean == pytest.approx(math.log(4.0))


def test_few_suffix_lengths_are_calibrated_exactly_and_many_at_powers_of_two() -> None:
    few, many = range(1, EXACT_LENGTHS + 1), range(1, EXACT_LENGTHS + 2)
    assert [calibration_length(length, few) for length in few] == list(few)
    assert [calibration_length(length, many) for length in (1, 2, 3, 5, 6, 12, 50)] == [1, 2, 4, 4, 8, 16, 64]


def test_our_generic_texts_serve_suffixes_of_fifty_tokens_in_any_tokenizer() -> None:
    texts = read_generic(None)
    assert len(texts) >= 12
    # No tokenizer of words or pieces has fewer tokens than words.
    assert min(len(text.split()) for text in texts) >= 100
    assert len(set(texts)) == len(texts)


def test_generic_texts_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(TextError, match="cannot be read"):
        read_generic("/nowhere/generic.txt")
