"""The planned training set: exactly the copies of the plan, exact near-duplicate shares, controls nowhere."""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from byrote.errors import ConfigError
from byrote.lab.copies import (
    CopyPlan,
    PassageKind,
    PlannedPassage,
    near_duplicate,
    other_edition,
    training_documents,
)
from byrote.lab.pocket import POCKET, PREFIX_TOKENS, WINDOW_TOKENS, PocketStream, plan_stream
from byrote.lab.prose import write_passages
from byrote.lab.train import encode_all, train_tokenizer


@cache
def pocket_stream() -> PocketStream:
    return plan_stream(POCKET)


@cache
def pocket_documents() -> list[list[int]]:
    return training_documents(pocket_stream().copies, pocket_stream().tokenizer)


def runs(token_ids: Sequence[int], length: int) -> Iterable[tuple[int, ...]]:
    return (tuple(token_ids[start : start + length]) for start in range(len(token_ids) - length + 1))


def test_every_target_is_in_the_stream_exactly_as_often_as_planned() -> None:
    copies, tokenizer = pocket_stream()
    counts = Counter(tuple(document) for document in pocket_documents())
    for target in copies.targets:
        (token_ids,) = encode_all(tokenizer, [target.text_in_stream])
        assert counts[tuple(token_ids)] == target.copies, target.name
    assert sum(counts.values()) == len(copies.background) + sum(target.copies for target in copies.targets)


def test_pocket_plan_has_at_least_twelve_windows_at_every_copy_level() -> None:
    per_level = Counter(t.copies for t in pocket_stream().copies.targets if t.kind is not PassageKind.EDITION)
    assert sorted(per_level) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert min(per_level.values()) >= 12


def test_every_pocket_passage_holds_a_whole_window() -> None:
    copies, tokenizer = pocket_stream()
    passages = (*copies.targets, *copies.controls)
    assert all(len(ids) >= WINDOW_TOKENS for ids in encode_all(tokenizer, [passage.text for passage in passages]))


def test_no_control_shares_fifty_tokens_with_the_stream() -> None:
    copies, tokenizer = pocket_stream()
    seen = {run for document in {tuple(d) for d in pocket_documents()} for run in runs(document, 50)}
    for token_ids in encode_all(tokenizer, [control.text for control in copies.controls]):
        assert not any(run in seen for run in runs(token_ids, 50))


def test_no_target_is_hidden_in_another_document() -> None:
    """Copies are counted as documents; a window that also stood in other text would have more copies than planned."""
    copies, tokenizer = pocket_stream()
    holders: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for document in {tuple(document) for document in pocket_documents()}:
        for run in runs(document, 50):
            holders.setdefault(run, set()).add(document)
    for token_ids in encode_all(tokenizer, [target.text_in_stream for target in copies.targets]):
        for run in runs(token_ids, 50):
            assert holders[run] == {tuple(token_ids)}


def test_other_editions_are_scanned_in_a_wording_the_stream_does_not_hold() -> None:
    copies, tokenizer = pocket_stream()
    editions = [target for target in copies.targets if target.kind is PassageKind.EDITION]
    assert len(editions) == POCKET.editions
    in_stream = {tuple(document) for document in pocket_documents()}
    for edition in editions:
        scanned, trained = encode_all(tokenizer, [edition.text, edition.text_in_stream])
        assert tuple(scanned) not in in_stream
        suffixes = [token_ids[PREFIX_TOKENS:WINDOW_TOKENS] for token_ids in (scanned, trained)]
        assert 1 <= Levenshtein.distance(*suffixes) <= POCKET.most_edition_edits


def test_order_of_the_stream_follows_the_seed() -> None:
    copies, tokenizer = pocket_stream()
    assert training_documents(copies, tokenizer) == pocket_documents()
    other = training_documents(dataclasses.replace(copies, seed=copies.seed + 1), tokenizer)
    assert other != pocket_documents()
    assert Counter(map(tuple, other)) == Counter(map(tuple, pocket_documents()))


@given(
    original=st.lists(st.integers(0, 30), min_size=1, max_size=80),
    donor=st.lists(st.integers(0, 30), min_size=2, max_size=50).filter(lambda donor: len(set(donor)) > 1),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_near_duplicate_agrees_in_exactly_the_stated_share(
    original: list[int], donor: list[int], share: float, seed: int
) -> None:
    duplicate = near_duplicate(original, donor, share=share, generator=random.Random(seed))
    assert len(duplicate) == len(original)
    assert sum(a == b for a, b in zip(original, duplicate, strict=True)) == round(share * len(original))
    assert set(duplicate) <= set(original) | set(donor)


@cache
def small_plan() -> CopyPlan:
    target, control, *background = write_passages(7, 12, least_words=60)
    return CopyPlan(
        targets=(PlannedPassage("a", PassageKind.PROSE, target, copies=3, near_duplicates=20),),
        controls=(PlannedPassage("c", PassageKind.PROSE, control),),
        background=tuple(background),
        seed=0,
    )


def test_planned_near_duplicates_share_a_fifth_of_the_tokens_and_are_all_different() -> None:
    plan = small_plan()
    tokenizer = train_tokenizer(plan.texts(), vocabulary_size=500)
    (original,) = encode_all(tokenizer, [plan.targets[0].text])
    known = {tuple(token_ids) for token_ids in encode_all(tokenizer, plan.texts())}
    duplicates = [document for document in training_documents(plan, tokenizer) if tuple(document) not in known]
    assert len({tuple(duplicate) for duplicate in duplicates}) == 20
    for duplicate in duplicates:
        agreeing = sum(a == b for a, b in zip(original, duplicate, strict=True))
        assert agreeing == round(0.2 * len(original))


def test_near_duplicates_stay_the_same_when_the_copies_are_taken_out() -> None:
    """The counterfactual baseline: the same stream without the exact copies."""
    plan = small_plan()
    tokenizer = train_tokenizer(plan.texts(), vocabulary_size=500)
    without = dataclasses.replace(plan, targets=(dataclasses.replace(plan.targets[0], copies=0),))
    full, baseline = (Counter(map(tuple, training_documents(p, tokenizer))) for p in (plan, without))
    (original,) = encode_all(tokenizer, [plan.targets[0].text])
    assert full - baseline == Counter({tuple(original): 3})
    assert not baseline - full


@given(seed=st.integers(0, 1000), changes=st.integers(1, 6))
def test_another_edition_differs_by_a_few_characters_for_each_change(seed: int, changes: int) -> None:
    (text,) = write_passages(seed, 1, least_words=80)
    edition = other_edition(text, random.Random(seed), changes=changes)
    # The widest single change is learnt → learned, 3 characters.
    assert 1 <= Levenshtein.distance(text, edition) <= 3 * changes
    assert other_edition(text, random.Random(seed), changes=changes) == edition


def test_a_control_with_copies_is_refused() -> None:
    with pytest.raises(ConfigError, match="control c is planned with 2 copies"):
        CopyPlan((), (PlannedPassage("c", PassageKind.PROSE, "text", copies=2),), (), seed=0)


def test_a_name_used_twice_is_refused() -> None:
    twin = PlannedPassage("twin", PassageKind.PROSE, "text")
    with pytest.raises(ConfigError, match="twin are used twice"):
        CopyPlan((twin,), (twin,), (), seed=0)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_no_fraction_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="is not a fraction"):
        near_duplicate([1, 2], [3, 4], share=share, generator=random.Random(0))


def test_near_duplicates_without_background_are_refused() -> None:
    with pytest.raises(ConfigError, match="Add background text"):
        near_duplicate([1, 2], [], share=0.2, generator=random.Random(0))
