"""The planned training set: exactly the copies of the plan, controls nowhere."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from byrote.lab.pocket import (
    POCKET,
    PREFIX_TOKENS,
    WINDOW_TOKENS,
    PassageKind,
    PocketStream,
    other_edition,
    plan_stream,
)
from byrote.lab.texts import write_passages
from byrote.lab.train import encode_all


@cache
def pocket_stream() -> PocketStream:
    return plan_stream(POCKET)


@cache
def pocket_documents() -> list[list[int]]:
    return pocket_stream().documents(POCKET.seed)


def runs(token_ids: Sequence[int], length: int) -> Iterable[tuple[int, ...]]:
    return (tuple(token_ids[start : start + length]) for start in range(len(token_ids) - length + 1))


def test_every_target_is_in_the_stream_exactly_as_often_as_planned() -> None:
    stream = pocket_stream()
    counts = Counter(tuple(document) for document in pocket_documents())
    for target in stream.targets:
        (token_ids,) = encode_all(stream.tokenizer, [target.text_in_stream])
        assert counts[tuple(token_ids)] == target.copies, target.name
    assert sum(counts.values()) == len(stream.background) + sum(target.copies for target in stream.targets)


def test_pocket_plan_has_at_least_twelve_windows_at_every_copy_level() -> None:
    per_level = Counter(t.copies for t in pocket_stream().targets if t.kind is not PassageKind.EDITION)
    assert sorted(per_level) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert min(per_level.values()) >= 12


def test_every_pocket_passage_holds_a_whole_window() -> None:
    stream = pocket_stream()
    passages = (*stream.targets, *stream.controls)
    assert all(
        len(ids) >= WINDOW_TOKENS for ids in encode_all(stream.tokenizer, [passage.text for passage in passages])
    )


def test_no_control_shares_fifty_tokens_with_the_stream() -> None:
    stream = pocket_stream()
    seen = {run for document in {tuple(d) for d in pocket_documents()} for run in runs(document, 50)}
    for token_ids in encode_all(stream.tokenizer, [control.text for control in stream.controls]):
        assert not any(run in seen for run in runs(token_ids, 50))


def test_no_target_is_hidden_in_another_document() -> None:
    """Copies are counted as documents; a window that also stood in other text would have more copies than planned."""
    stream = pocket_stream()
    holders: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for document in {tuple(document) for document in pocket_documents()}:
        for run in runs(document, 50):
            holders.setdefault(run, set()).add(document)
    for token_ids in encode_all(stream.tokenizer, [target.text_in_stream for target in stream.targets]):
        for run in runs(token_ids, 50):
            assert holders[run] == {tuple(token_ids)}


def test_other_editions_are_scanned_in_a_wording_the_stream_does_not_hold() -> None:
    stream = pocket_stream()
    editions = [target for target in stream.targets if target.kind is PassageKind.EDITION]
    assert len(editions) == POCKET.editions
    in_stream = {tuple(document) for document in pocket_documents()}
    for edition in editions:
        scanned, trained = encode_all(stream.tokenizer, [edition.text, edition.text_in_stream])
        assert tuple(scanned) not in in_stream
        suffixes = [token_ids[PREFIX_TOKENS:WINDOW_TOKENS] for token_ids in (scanned, trained)]
        assert 1 <= Levenshtein.distance(*suffixes) <= POCKET.most_edition_edits


def test_order_of_the_stream_follows_the_seed() -> None:
    stream = pocket_stream()
    assert stream.documents(POCKET.seed) == pocket_documents()
    other = stream.documents(POCKET.seed + 1)
    assert other != pocket_documents()
    assert Counter(map(tuple, other)) == Counter(map(tuple, pocket_documents()))


@given(seed=st.integers(0, 1000), changes=st.integers(1, 6))
def test_another_edition_differs_by_a_few_characters_for_each_change(seed: int, changes: int) -> None:
    (text,) = write_passages(seed, 1, least_words=80)
    edition = other_edition(text, random.Random(seed), changes=changes)
    # The widest single change is learnt → learned, 3 characters.
    assert 1 <= Levenshtein.distance(text, edition) <= 3 * changes
    assert other_edition(text, random.Random(seed), changes=changes) == edition
