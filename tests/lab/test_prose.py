"""Invented prose: the same bytes for a seed, different content for another, and readable sentences."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from byrote.lab.texts import with_article, write_passage, write_passages


def test_same_seed_gives_the_same_passages() -> None:
    assert write_passages(3, 20, least_words=60) == write_passages(3, 20, least_words=60)


def test_another_seed_gives_other_passages() -> None:
    assert not set(write_passages(3, 50, least_words=60)) & set(write_passages(4, 50, least_words=60))


def test_first_passages_do_not_depend_on_how_many_are_asked_for() -> None:
    assert write_passages(0, 40, least_words=60)[:15] == write_passages(0, 15, least_words=60)


@given(seed=st.integers(0, 10**6), least_words=st.integers(1, 300))
def test_a_passage_is_whole_sentences_of_at_least_the_words_asked_for(seed: int, least_words: int) -> None:
    text = write_passage(random.Random(seed), least_words=least_words)
    assert len(text.split()) >= least_words
    assert text.endswith(".")
    assert "{" not in text
    assert "  " not in text
    # Every sentence starts with a capital or with speech; an unfilled or wrongly cased slot would break this.
    assert all(re.match(r'["A-Z]', sentence) for sentence in re.split(r'(?<=[.])"? ', text))


def test_passages_share_no_long_run_of_words() -> None:
    """Content must not be predictable: over 500 passages, no run of 35 words is written twice."""
    seen: dict[tuple[str, ...], int] = {}
    for number, passage in enumerate(write_passages(1, 500, least_words=80)):
        words = passage.split()
        for start in range(len(words) - 34):
            run = tuple(words[start : start + 35])
            assert seen.setdefault(run, number) == number


def test_article_follows_the_sound_of_the_noun() -> None:
    assert with_article("iron key") == "an iron key"
    assert with_article("brass lantern") == "a brass lantern"
