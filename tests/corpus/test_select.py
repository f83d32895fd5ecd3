"""Choosing windows: the first N, and a seeded sample judged by sorting every window by its key."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.corpus.documents import Document
from rote.corpus.select import sample_key, select_windows
from rote.corpus.windows import WindowOptions, cut_windows
from rote.errors import ConfigError, WindowError
from rote.types import Split
from tests.corpus.toy_tokenizers import WordTokenizer

OPTIONS = WindowOptions(prefix_tokens=3, suffix_tokens=2, stride_chars=4)
TEXT = "".join(f"w{number} " for number in range(200))


def document(name: str, text: str = TEXT) -> Document:
    return Document.from_text(name, text, split=Split.TARGET)


def select(*documents: Document, **choice: int) -> list[str]:
    chosen = select_windows(documents, WordTokenizer(), OPTIONS, bos_id=None, **choice)
    return [window.window_id for window in chosen.windows]


def all_ids(*documents: Document) -> list[str]:
    return [window.window_id for window in cut_windows(documents, WordTokenizer(), OPTIONS, bos_id=None).windows]


def test_limit_keeps_the_first_windows_of_all() -> None:
    documents = document("a", TEXT[:60]), document("b")
    assert select(*documents, limit=20) == all_ids(*documents)[:20]
    assert select(*documents, limit=10**6) == all_ids(*documents) == select(*documents)


def test_limit_tokenises_no_further_than_needed() -> None:
    tokenizer = WordTokenizer()
    select_windows([document("a", TEXT * 100)], tokenizer, OPTIONS, bos_id=None, limit=3)
    assert len(tokenizer.batches) == 1


@given(size=st.integers(1, 400), seed=st.integers(0, 2**64), text_end=st.integers(20, len(TEXT)))
@settings(deadline=None)
def test_sample_is_the_windows_of_smallest_key_in_document_order(size: int, seed: int, text_end: int) -> None:
    documents = document("a"), document("b", TEXT[:text_end])
    every = all_ids(*documents)
    kept = set(sorted(every, key=lambda window_id: sample_key(window_id, seed))[:size])
    assert select(*documents, sample=size, seed=seed) == [window_id for window_id in every if window_id in kept]


def test_sample_of_a_larger_corpus_agrees_with_the_smaller_one() -> None:
    alone = select(document("a"), sample=40, seed=5)
    together = select(document("b"), document("a"), sample=40, seed=5)
    assert {window_id for window_id in together if window_id.startswith("a@")} <= set(alone)


def test_another_seed_draws_another_sample() -> None:
    assert select(document("a"), sample=20, seed=1) != select(document("a"), sample=20, seed=2)


def test_sample_is_uniform_over_positions() -> None:
    # Mean position of 50 of n windows over 40 seeds; the seeds are fixed, so the test cannot flicker. For a random
    # draw the bound is five standard errors, chance of a false alarm 6e-7.
    every = {window_id: position for position, window_id in enumerate(all_ids(document("a")))}
    positions = [every[window_id] for seed in range(40) for window_id in select(document("a"), sample=50, seed=seed)]
    count = len(every)
    standard_error = count / 12**0.5 / len(positions) ** 0.5
    assert abs(sum(positions) / len(positions) - (count - 1) / 2) < 5 * standard_error


def test_sample_and_limit_together_keep_the_first_of_the_sample() -> None:
    assert select(document("a"), sample=30, limit=7, seed=3) == select(document("a"), sample=30, seed=3)[:7]


def test_sample_tokenises_only_what_it_takes() -> None:
    tokenizer = WordTokenizer()
    select_windows([document("a", TEXT * 50)], tokenizer, OPTIONS, bos_id=None, sample=100, seed=1)
    assert sum(tokenizer.batches) <= 300


def test_no_window_says_the_document_its_tokens_and_the_need() -> None:
    with pytest.raises(WindowError) as caught:
        select(document("b.txt", "a b"), document("a.txt", "a b c"))
    assert str(caught.value) == (
        "a.txt has 3 tokens and 1 other document no more; prefix + suffix need 3 + 2 = 5. "
        "Shorten --prefix-tokens or --suffix-tokens, or give more text."
    )


def test_no_document_at_all_is_a_window_error() -> None:
    with pytest.raises(WindowError, match="no document"):
        select()


@pytest.mark.parametrize("choice", [{"limit": 0}, {"sample": 0}, {"sample": -4}])
def test_impossible_choice_is_refused(choice: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(choice))} is {next(iter(choice.values()))}"):
        select(document("a"), **choice)
