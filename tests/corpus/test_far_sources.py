"""Texts that are no files here: behind URLs of a file system in memory, and in saved datasets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rote.corpus.documents import read_documents
from rote.errors import TextError
from rote.types import Split


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.pipe(
        {
            "/books/one.txt": b"first text",
            "/books/more/two.md": b"second text",
            "/books/records.jsonl": b'{"id": "a", "text": "third"}\n{"text": "fourth"}\n',
            "/books/.hidden.txt": b"hidden",
            "/books/picture.png": b"no text",
        }
    )
    yield system
    system.rm("/books", recursive=True)


def read(*sources: str | Path) -> dict[str, str]:
    return {document.name: document.text for document in read_documents(sources, split=Split.TARGET)}


def test_files_behind_a_url_are_read_as_files_here(memory: Any, tmp_path: Path) -> None:
    for path in memory.find("/books"):
        here = tmp_path / path.removeprefix("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(memory.cat(path))
    local = read(tmp_path / "books")
    assert len(local) == 4
    assert read("memory://books") == local
    assert read(f"file://{tmp_path}/books") == local
    assert read("memory://books/one.txt") == {"one.txt": "first text"}
    assert read("memory://books/*.txt") == {"one.txt": "first text"}
    assert read("memory://books/one.txt", "memory://books/one.txt") == {"one.txt": "first text"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://books/none.txt", "does not exist"),
        ("nosuch://books", "cannot be read"),
        ("memory://books/*.csv", "holds no file that rote reads"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused_by_name(memory: Any, url: str, words: str) -> None:
    with pytest.raises(TextError, match=words) as refused:
        read(url)
    assert url in str(refused.value)


def test_what_is_wrong_with_a_far_file_is_said_with_its_url(memory: Any) -> None:
    memory.pipe("/books/bad.jsonl", b"{}\n")
    with pytest.raises(TextError, match=r"memory://.*bad.jsonl, line 1: field 'text' is missing"):
        read("memory://books/bad.jsonl")


def test_a_saved_dataset_is_one_document_a_row(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="an extra: pip install 'rote[datasets]'")
    rows = datasets.Dataset.from_dict({"id": ["x", None], "text": ["one", "two"], "other": [1, 2]})
    rows.save_to_disk(tmp_path / "saved")
    assert read(tmp_path / "saved") == {"saved#x": "one", "saved#2": "two"}
    splits = datasets.DatasetDict({"train": rows, "test": rows.select([0])})
    splits.save_to_disk(tmp_path / "both")
    assert read(tmp_path / "both") == {"both/train#x": "one", "both/train#2": "two", "both/test#x": "one"}
    rows.remove_columns("text").save_to_disk(tmp_path / "bare")
    with pytest.raises(TextError, match=r"has no column 'text' \(it has id, other\)"):
        read(tmp_path / "bare")
