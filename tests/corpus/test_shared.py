"""Leakage against the obvious version: word tuples in Python sets, character by character."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus import overlap as shared
from byrote.corpus import overlap as shingles
from byrote.corpus.overlap import LEAST_SHARE, RUN_WORDS, SHARE_COLUMN, WITH_COLUMN, find_shared, mark_shared, runs_of
from byrote.corpus.read import Document
from byrote.corpus.windows import WindowOptions
from byrote.types import Split
from tests.corpus.cutting import cut_windows
from tests.corpus.toy_tokenizers import WordTokenizer

WORDS = ["river", "lamp", "Stone", "letter", "door"]
texts = st.lists(st.sampled_from([*WORDS, "漢字", "12"]), max_size=40).flatmap(
    lambda words: st.lists(st.sampled_from([" ", "\n", ", ", " — "]), min_size=len(words), max_size=len(words)).map(
        lambda gaps: "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    )
)


def document(name: str, text: str, split: Split = Split.TARGET) -> Document:
    return Document.from_text(name, text, split=split)


def control(name: str, text: str) -> Document:
    return document(name, text, Split.CONTROL)


def obvious_words(text: str) -> list[re.Match[str]]:
    return list(re.finditer(r"[漢字]|[a-z0-9]+", text.lower()))


def obvious_runs(text: str) -> list[tuple[tuple[str, ...], int, int]]:
    words = obvious_words(text)
    return [
        (
            tuple(word.group() for word in words[place : place + RUN_WORDS]),
            words[place].start(),
            words[place + RUN_WORDS - 1].end(),
        )
        for place in range(len(words) - RUN_WORDS + 1)
    ]


def obvious_cover(text: str, targets: list[str]) -> list[bool]:
    held = {run for target in targets for run, _, _ in obvious_runs(target)}
    covered = [False] * len(text)
    for run, start, end in obvious_runs(text):
        if run in held:
            covered[start:end] = [True] * (end - start)
    return covered


@given(text=texts)
def test_runs_are_those_of_a_regular_expression(text: str) -> None:
    expected = obvious_runs(text)
    pieces = list(runs_of(text, RUN_WORDS))
    spans = [pair for runs in pieces for pair in zip(runs.starts.tolist(), runs.ends.tolist(), strict=True)]
    hashes = [value for runs in pieces for value in runs.hashes.tolist()]
    assert spans == [(start, end) for _, start, end in expected]
    # Equal runs, equal hashes, and the other way round.
    words = [run for run, _, _ in expected]
    assert len(set(hashes)) == len(set(words)) == len(set(zip(hashes, words, strict=True)))


@given(text=texts, piece=st.integers(1, 60))
def test_a_long_text_in_pieces_has_the_runs_of_the_whole(text: str, piece: int) -> None:
    whole = [entry for runs in runs_of(text, RUN_WORDS) for entry in zip(*map(list, runs), strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shingles, "CHUNK_CHARACTERS", max(piece, 8))
        cut = [entry for runs in runs_of(text, RUN_WORDS) for entry in zip(*map(list, runs), strict=True)]
    assert cut == whole


@given(
    targets=st.lists(texts, max_size=3), controls=st.lists(texts, max_size=3), group=st.integers(1, 50), data=st.data()
)
def test_shares_are_those_of_marking_every_character(
    targets: list[str], controls: list[str], group: int, data: st.DataObject
) -> None:
    documents = [document(f"t{place}", text) for place, text in enumerate(targets)]
    documents += [control(f"c{place}", text) for place, text in enumerate(controls)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "GROUP_RUNS", group)
        found = find_shared(documents)
    for place, text in enumerate(controls):
        covered = obvious_cover(text, targets)
        start = data.draw(st.integers(0, max(0, len(text) - 1)))
        end = data.draw(st.integers(start, len(text)))
        share, target = found.share_of(f"c{place}", start, end)
        assert share == (sum(covered[start:end]) / (end - start) if end > start else 0.0)
        if share:
            # The target named holds a run of this stretch.
            named = targets[int(str(target)[1:])]
            assert any(obvious_cover(text, [named])[start:end])
        else:
            assert target is None


def prose(seed: int, words: int) -> str:
    """Words of a large vocabulary: two such texts share no eight in a row."""
    generator = random.Random(seed)
    return " ".join("".join(generator.choices("abcdefghij", k=generator.randint(2, 7))) for _ in range(words))


def marked(documents: list[Document]) -> dict[str, dict[str, object]]:
    windows = cut_windows(documents, WordTokenizer(), WindowOptions(20, 20, 40), bos_id=None).windows
    return {window.window_id: dict(window.further) for window in mark_shared(windows, find_shared(documents))}


def test_a_passage_planted_in_a_control_is_found_and_nothing_else() -> None:
    passage = prose(1, 60)
    documents = [document("book.txt", f"{prose(2, 100)} {passage} {prose(3, 100)}")]
    documents.append(control("other.txt", f"{prose(4, 100)} {passage.upper().replace(' ', chr(10))} {prose(5, 100)}"))
    rows = marked(documents)
    first = documents[1].text.index(passage.split()[0].upper())
    last = first + len(passage)
    for window_id, columns in rows.items():
        if window_id.startswith("book"):
            assert columns == {SHARE_COLUMN: None, WITH_COLUMN: None}
    windows = cut_windows(documents, WordTokenizer(), WindowOptions(20, 20, 40), bos_id=None).windows
    checked = 0
    for window in windows:
        if window.document == "other.txt":
            overlap = max(0, min(window.char_end, last) - max(window.suffix_char_start, first))
            share = overlap / (window.char_end - window.suffix_char_start)
            columns = rows[window.window_id]
            assert columns[SHARE_COLUMN] == pytest.approx(share, abs=0.02)
            if abs(share - LEAST_SHARE) > 0.02:
                assert columns[WITH_COLUMN] == ("book.txt" if share > LEAST_SHARE else None)
                checked += share > LEAST_SHARE
    assert checked > 3


def test_a_suffix_with_scattered_changes_is_still_shared() -> None:
    generator = random.Random(7)
    words = prose(6, 400).split()
    changed = [generator.choice(WORDS) if place % 9 == 4 else word for place, word in enumerate(words)]
    rows = marked([document("book.txt", " ".join(words)), control("edition.txt", " ".join(changed))])
    shares = [columns[WITH_COLUMN] for window_id, columns in rows.items() if window_id.startswith("edition")]
    assert shares == ["book.txt"] * len(shares)
    assert shares


def test_texts_that_share_nothing_are_not_listed() -> None:
    found = find_shared([document("a", prose(1, 200)), control("b", prose(2, 200))])
    assert (found.passages, found.targets) == ({}, {})


def test_documents_may_be_read_anew_each_time() -> None:
    class Stream:
        passes = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            self.passes += 1
            yield document("a", prose(1, 50))
            yield control("b", prose(1, 50))

    stream = Stream()
    assert find_shared(stream).share_of("b", 0, 40)[0] == 1.0
    assert stream.passes == 2
