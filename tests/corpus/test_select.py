"""Choosing windows: all, the first of every document, or a stratified sample, judged by sorting every window."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from byrote.corpus.read import Document
from byrote.corpus.select import (
    limit_ranks,
    plan_windows,
    sample_ranks,
    select_windows,
    share_out,
)
from byrote.corpus.windows import Tally, WindowOptions, starts_of
from byrote.errors import ConfigError, WindowError
from byrote.types import Split
from tests.corpus.cutting import cut_windows
from tests.corpus.toy_tokenizers import WordTokenizer

OPTIONS = WindowOptions(prefix_tokens=3, suffix_tokens=2, stride_chars=4)
TEXT = "".join(f"w{number} " for number in range(200))


def document(name: str, text: str = TEXT, split: Split = Split.TARGET) -> Document:
    return Document.from_text(name, text, split=split)


def control(name: str, text: str = TEXT) -> Document:
    return document(name, text, Split.CONTROL)


def select(*documents: Document, **choice: int) -> list[str]:
    chosen = select_windows(documents, WordTokenizer(), OPTIONS, bos_id=None, **choice)
    return [window.window_id for window in chosen.windows]


def all_ids(*documents: Document) -> list[str]:
    return [window.window_id for window in cut_windows(documents, WordTokenizer(), OPTIONS, bos_id=None).windows]


def by_document(ids: list[str]) -> Counter[str]:
    return Counter(window_id.split("@")[0] for window_id in ids)


lengths = st.lists(st.tuples(st.sampled_from(Split), st.integers(0, 400)), min_size=1, max_size=6)


def corpus(shape: list[tuple[Split, int]]) -> list[Document]:
    return [document(f"d{place}", TEXT[:length], split) for place, (split, length) in enumerate(shape)]


def obvious_choice(documents: list[Document], size: int, seed: int | None) -> set[str]:
    """Every start of every document sorted by rank; the first windows long enough, each split its share."""
    usable = set(all_ids(*documents))
    ranked: dict[Split, list[tuple[float, int, int, str]]] = {one.split: [] for one in documents}
    for number, one in enumerate(documents):
        starts = np.array(starts_of(one, OPTIONS.stride_chars))
        place = sum(other.split is one.split for other in documents[:number])
        ranks = limit_ranks(place, starts) if seed is None else sample_ranks(one.name, starts, seed)
        ids = [(float(r), number, int(s), f"{one.name}@{s}") for r, s in zip(ranks, starts, strict=True)]
        ranked[one.split] += [entry for entry in ids if entry[-1] in usable]
    counts = {split: len(ranked[split]) for split in Split if split in ranked}
    shares = share_out(size, counts)
    return {entry[-1] for split, entries in ranked.items() for entry in sorted(entries)[: shares[split]]}


@given(shape=lengths, size=st.integers(2, 200), seed=st.none() | st.integers(0, 2**64))
def test_the_choice_is_the_first_windows_of_the_order(
    shape: list[tuple[Split, int]], size: int, seed: int | None
) -> None:
    documents = corpus(shape)
    every = all_ids(*documents)
    if not every:
        return
    chosen = select(*documents, limit=size) if seed is None else select(*documents, sample=size, seed=seed)
    kept = obvious_choice(documents, size, seed)
    assert chosen == [window_id for window_id in every if window_id in kept]
    assert len(chosen) == min(size, len(every))


@pytest.mark.parametrize("choice", [{"limit": 60}, {"sample": 60}])
def test_no_split_and_no_document_is_left_out(choice: dict[str, int]) -> None:
    documents = [document("a", TEXT * 3), document("b"), control("c"), control("d", TEXT[:200])]
    counts = by_document(select(*documents, **choice))
    assert counts["a"] + counts["b"] == counts["c"] + counts["d"] == 30
    # In proportion to the starts: three quarters of a and b, four fifths of c and d, give or take one.
    assert abs(counts["a"] - 22.5) <= 1.5
    assert abs(counts["c"] - 24) <= 2


def test_a_split_with_few_windows_gives_the_rest_to_the_other() -> None:
    documents = document("a"), control("b", TEXT[:40])
    few = len(all_ids(documents[1]))
    assert 0 < few < 10
    assert by_document(select(*documents, limit=100)) == {"a": 100 - few, "b": few}


def test_a_limit_takes_the_first_windows_of_each_document() -> None:
    documents = document("a"), document("b")
    chosen = select(*documents, limit=20)
    assert chosen == [*all_ids(documents[0])[:10], *all_ids(documents[1])[:10]]
    assert select(document("a"), limit=10**6) == all_ids(document("a")) == select(document("a"))


def test_a_limit_below_the_number_of_documents_takes_those_given_first() -> None:
    documents = [document(f"d{place}", TEXT[:60]) for place in range(9)]
    assert select(*documents, limit=4) == [f"d{place}@0" for place in range(4)]


@given(st.integers(2, 500), st.integers(0, 9))
def test_a_larger_sample_holds_the_smaller(size: int, seed: int) -> None:
    documents = document("a"), document("b", TEXT[:200]), control("c", TEXT[:300])
    small, large = (set(select(*documents, sample=count, seed=seed)) for count in (size, size + 1))
    assert small < large or len(small) == len(all_ids(*documents))


def test_a_sample_and_a_limit_together_are_the_smaller_sample() -> None:
    assert select(document("a"), sample=30, limit=7, seed=3) == select(document("a"), sample=7, seed=3)


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


def test_every_window_is_as_likely_as_any_other() -> None:
    """A quarter of 24 documents of two sizes, over 400 seeds: each window is drawn in about a quarter of them.

    Draws of one window over seeds are independent with chance 1/4; the bound is five standard deviations for each of
    some 100 windows, chance of a false alarm 6e-5 (and the seeds are fixed).
    """
    documents = [document(f"d{place}", TEXT[: 24 if place % 2 else 48]) for place in range(24)]
    every = all_ids(*documents)
    drawn: Counter[str] = Counter()
    for seed in range(400):
        drawn.update(select(*documents, sample=len(every) // 4, seed=seed))
    deviation = (400 * 0.25 * 0.75) ** 0.5
    assert all(abs(drawn[window_id] - 100) < 5 * deviation for window_id in every)


@given(st.integers(2, 100), st.integers(1, 60), st.integers(1, 60))
def test_shares_are_equal_as_far_as_both_sides_can_give(size: int, targets: int, controls: int) -> None:
    shares = share_out(size, {Split.TARGET: targets, Split.CONTROL: controls})
    target, other = shares[Split.TARGET], shares[Split.CONTROL]
    assert target + other == min(size, targets + controls)
    assert 1 <= target <= targets
    assert 1 <= other <= controls
    assert target - other in (0, 1) or target == targets or other == controls


def test_one_window_cannot_be_both_target_and_control() -> None:
    with pytest.raises(ConfigError, match="1 cannot hold both targets and controls; ask for at least 2"):
        select(document("a"), control("b"), limit=1)
    assert len(select(document("a"), limit=1)) == 1


def test_a_choice_tokenises_only_what_it_takes() -> None:
    for choice in ({"limit": 100}, {"sample": 100}):
        tokenizer = WordTokenizer()
        select_windows([document("a", TEXT * 50)], tokenizer, OPTIONS, bos_id=None, **choice)  # type: ignore[arg-type]
        assert sum(tokenizer.batches) <= 300


class Stream:
    """Documents that exist one at a time."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents, self.alive = documents, 0

    def __iter__(self) -> Iterator[Document]:
        for one in self.documents:
            yield Document.from_text(one.name, one.text, split=one.split)


class FinishedIds(set[str]):
    def holds_places(self, document: str, char_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array([f"{document}@{start}" in self for start in char_starts], np.bool_)


@given(shape=lengths, size=st.none() | st.integers(2, 100), data=st.data())
def test_a_plan_over_a_stream_passes_over_what_is_finished(
    shape: list[tuple[Split, int]], size: int | None, data: st.DataObject
) -> None:
    documents = corpus(shape)
    plan = plan_windows(Stream(documents), OPTIONS, sample=size)
    tally = Tally()
    whole = [window.window_id for window in plan.cut(WordTokenizer(), bos_id=None, tally=tally)]
    assert len(whole) == tally.windows.total() <= plan.selection.most
    finished = FinishedIds(data.draw(st.lists(st.sampled_from(whole))) if whole else ())
    rest = [window.window_id for window in plan.cut(WordTokenizer(), bos_id=None, finished=finished)]
    assert sorted([*finished, *rest]) == sorted(whole)


def test_no_window_says_the_document_its_tokens_and_the_need() -> None:
    with pytest.raises(WindowError) as caught:
        select(document("b.txt", "a b"), document("a.txt", "a b c"))
    assert str(caught.value) == (
        "a.txt has 3 tokens and 1 other document no more; prefix + suffix need 3 + 2 = 5 tokens. "
        "Shorten --prefix-tokens or --suffix-tokens, or give more text."
    )


def test_no_document_at_all_is_a_window_error() -> None:
    with pytest.raises(WindowError, match="No document"):
        select()


@given(shape=lengths, choice=st.sampled_from([{}, {"limit": 40}, {"sample": 40}]), shards=st.integers(1, 4))
def test_parts_of_a_choice_make_up_the_whole(
    shape: list[tuple[Split, int]], choice: dict[str, int], shards: int
) -> None:
    """Every part is cut by itself; windows and short starts of all parts are those of the whole."""
    plan, whole, together = plan_windows(corpus(shape), OPTIONS, **choice), Tally(), Tally()
    expected = {window.window_id for window in plan.cut(WordTokenizer(), bos_id=None, tally=whole)}
    found: list[str] = []
    for shard in range(shards):

        def is_wanted(window_id: str, shard: int = shard) -> bool:
            return sum(window_id.encode()) % shards == shard

        cut = plan.cut(WordTokenizer(), bos_id=None, tally=together, is_wanted=is_wanted)
        found += [window.window_id for window in cut]
    assert sorted(found) == sorted(expected)
    assert (together.windows, together.short) == (whole.windows, whole.short)
