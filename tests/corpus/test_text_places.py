"""Texts are where they were found and are read when they are needed: a corpus is never in memory."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from byrote.corpus import read as text_places
from byrote.corpus import windows as cutting
from byrote.corpus.overlap import find_shared
from byrote.corpus.read import Spool, read_corpus, read_documents, read_unchanged
from byrote.corpus.select import plan_windows
from byrote.corpus.windows import WindowOptions
from byrote.errors import TextError
from byrote.store import tables as storing
from byrote.types import Split
from tests.corpus.toy_tokenizers import WordTokenizer

CHARACTERS, TEXTS = 1 << 18, 32
OPTIONS = WindowOptions(prefix_tokens=3, suffix_tokens=2, stride_chars=1 << 15)


def text_of(number: int, word: str) -> str:
    return (f"{number} {word} " * CHARACTERS)[:CHARACTERS]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many texts in files of their own as in one file of records. One of them is in both."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(TEXTS):
        (folder / f"{number}.txt").write_text(text_of(number, "word"), encoding="utf-8")
    texts = [text_of(number, "word" if number == 1 else "note") for number in range(TEXTS)]
    records = "\n".join(json.dumps({"text": text}) for text in texts)
    (folder / "records.jsonl").write_text(records, encoding="utf-8")
    return folder


@pytest.mark.parametrize("choice", [{}, {"sample": 9}], ids=str)
def test_a_corpus_is_read_cut_compared_and_stored_a_few_texts_at_a_time(
    corpus: Path, choice: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that Python allocates, at its peak, is far below the texts, which are gone through in every way."""
    monkeypatch.setattr(cutting, "CHARACTERS_PER_BATCH", 2 * CHARACTERS)
    monkeypatch.setattr(storing, "BATCH_CHARACTERS", CHARACTERS)
    monkeypatch.setattr(text_places, "SPOOL_BYTES", CHARACTERS)
    tracemalloc.start()
    try:
        documents = read_corpus([f"{corpus}/*.txt"], [corpus / "records.jsonl"])
        windows = sum(1 for _ in plan_windows(documents, OPTIONS, **choice).cut(WordTokenizer(), bos_id=None))
        stored = sum(len(row["text"]) for batch in storing.text_batches(documents) for row in batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert windows == choice.get("sample", len(documents) * 8)
    assert stored == len(documents) * CHARACTERS
    # A record's line is held as bytes, as text and as what it is parsed to.
    assert peak < 10 * CHARACTERS < stored / 6


def test_passages_that_controls_share_are_found_in_texts_on_the_disk(corpus: Path) -> None:
    documents = read_documents([corpus / "1.txt"], split=Split.TARGET)
    controls = read_documents([corpus / "records.jsonl"], split=Split.CONTROL)[:3]
    assert list(find_shared([*documents, *controls]).passages) == ["records.jsonl#2"]


def test_a_file_that_changes_while_it_is_scanned_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one", encoding="utf-8")
    [document] = read_documents([path], split=Split.TARGET)
    assert document.text == "one"
    path.write_text("two", encoding="utf-8")
    with pytest.raises(TextError, match=r"a\.txt was changed while it was scanned"):
        document.held()
    path.unlink()
    with pytest.raises(TextError, match=r"a\.txt cannot be read"):
        document.held()


@pytest.mark.parametrize("room", [0, 4, 1 << 20])
def test_a_spool_gives_back_every_text_in_any_order(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, on the disk from the first text on, and in between."""
    monkeypatch.setattr(text_places, "SPOOL_BYTES", room)
    spool, texts = Spool(), ["", "é漢\r\n", "a" * 9, "", "b\u2028"]
    places = [spool.add(text) for text in texts]
    assert [place() for place in reversed(places)] == texts[::-1]
    places.append(spool.add("last"))
    assert [place() for place in places] == [*texts, "last"]


def test_files_stay_where_they_are_and_records_are_kept_apart(corpus: Path) -> None:
    places: dict[str, Any] = {
        document.name: document.place for document in read_documents([corpus], split=Split.TARGET)
    }
    assert places["0.txt"].func is read_unchanged
    assert isinstance(places["records.jsonl#1"].func.__self__, Spool)
