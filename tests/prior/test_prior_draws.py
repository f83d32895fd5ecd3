"""Prefixes of the reference corpus: all of them where that is no more than was asked for, otherwise drawn."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.read import Document
from byrote.errors import ConfigError, WindowError
from byrote.prior.draws import DrawnPrefixes, draw_prefixes, shorten
from byrote.search import sizing
from byrote.types import Split
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


@given(st.lists(st.text(alphabet="abc", min_size=9, max_size=30), min_size=1, max_size=4), st.integers(0, 99))
def test_every_trial_has_its_draws_and_every_draw_is_of_the_corpus(texts: list[str], seed: int) -> None:
    corpus = documents(*texts)
    drawn = draw(corpus, seed=seed, draws=2)
    assert not drawn.is_exhaustive
    assert drawn.counts.sum(axis=0).tolist() == [2, 2, 2]
    assert len(set(drawn.prefixes)) == len(drawn.prefixes)
    assert set(drawn.prefixes) <= set(possible(corpus, 4))


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=12), min_size=1, max_size=5), st.integers(0, 99))
def test_a_corpus_with_no_more_prefixes_than_draws_is_taken_whole(texts: list[str], seed: int) -> None:
    corpus = documents("abaab", *texts)
    drawn = draw(corpus, seed=seed)
    assert drawn.is_exhaustive
    expected = Counter(possible(corpus, 4))
    assert dict(zip(drawn.prefixes, drawn.counts[:, 0].tolist(), strict=True)) == expected
    assert drawn.counts.shape[1] == 1
    assert drawn.draws == expected.total()
    assert drawn.shortened(2, None).is_exhaustive


def test_more_draws_than_memory_holds_cost_nothing_where_the_corpus_is_taken_whole() -> None:
    assert draw(documents("abcdefghij"), draws=10**12).draws == 6


@pytest.mark.parametrize(
    ("draws", "words"), [(10, "drawing 10 prefixes in each of 3 trials"), (500, "listing all 100")]
)
def test_prefixes_that_memory_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch, draws: int, words: str) -> None:
    monkeypatch.setattr(sizing, "available_memory", lambda: 1000)
    with pytest.raises(ConfigError, match=rf"{words}.* would take .* lower --prior-prefixes"):
        draw(documents("abcdefghij" * 10), draws=draws)


def test_draws_are_uniform_over_the_starts_that_are_long_enough() -> None:
    corpus = documents("abcdefghij", "klmnopq", "xyz")
    starts = Counter[tuple[int, ...]]()
    for seed in range(1000):
        drawn = draw(corpus, draws=9, trials=1, seed=seed)
        starts.update(dict(zip(drawn.prefixes, drawn.counts[:, 0].tolist(), strict=True)))
    # 9,000 draws over 9 starts: 1,000 ± 30 each; 5 standard deviations, a false alarm in 2e5, and seeded.
    assert set(starts) == set(possible(corpus, 4))
    assert all(abs(count - 1000) < 150 for count in starts.values())


def test_a_corpus_of_mostly_short_documents_is_listed_and_still_uniform() -> None:
    corpus = documents(*["abc"] * 4200, "defghijk")
    drawn = draw(corpus, draws=4000, trials=1)
    assert not drawn.is_exhaustive
    assert set(drawn.prefixes) == set(possible(corpus[-1:], 4))
    # 1,000 ± 27 each; more than 5 standard deviations, seeded.
    assert abs(drawn.counts[:, 0] - 1000).max() < 150


def test_stretches_are_what_stands_side_by_side_in_different_texts() -> None:
    """Four characters a prefix; overlapping prefixes, a text given twice and repeated passages add none."""
    corpus = documents("abcdefghijkl", "mnopqrst")
    assert draw(corpus).stretches == draw(corpus, draws=2).stretches == 5
    assert draw(corpus, draws=2, trials=1).independent == 2
    assert draw([*corpus, *documents("abcdefghijkl")], draws=1).stretches == 5
    assert draw(documents("ab" * 50)).stretches == 2
    assert draw(corpus, stride_chars=None).stretches == 2


def test_the_same_seed_draws_the_same_prefixes() -> None:
    corpus = documents("the quick brown fox", "jumps over the dog")
    first, again, other = (draw(corpus, seed=seed, draws=5) for seed in (4, 4, 5))
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
