"""Texts that are no files here: behind URLs of a file system in memory, and in saved datasets."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest

from byrote.corpus.read import read_documents
from byrote.errors import TextError
from byrote.types import Split


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
        ("memory://books/*.csv", "holds no file that byrote reads"),
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
    datasets = pytest.importorskip("datasets", reason="an extra: pip install 'byrote[datasets]'")
    rows = datasets.Dataset.from_dict({"id": ["x", None], "text": ["one", "two"], "other": [1, 2]})
    rows.save_to_disk(tmp_path / "saved")
    assert read(tmp_path / "saved") == {"saved#x": "one", "saved#2": "two"}
    splits = datasets.DatasetDict({"train": rows, "test": rows.select([0])})
    splits.save_to_disk(tmp_path / "both")
    assert read(tmp_path / "both") == {"both/train#x": "one", "both/train#2": "two", "both/test#x": "one"}
    rows.remove_columns("text").save_to_disk(tmp_path / "bare")
    with pytest.raises(TextError, match=r"has no column 'text' \(it has id, other\)"):
        read(tmp_path / "bare")


@pytest.mark.parametrize("splits", [["/etc"], ["../other"], [1], "train", [""], [["a"]]])
def test_splits_that_are_no_folders_of_the_dataset_are_refused(tmp_path: Path, splits: Any) -> None:
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": splits}), encoding="utf-8")
    with pytest.raises(TextError, match=r"dataset_dict\.json is not what save_to_disk writes"):
        read(tmp_path)


def test_a_damaged_dataset_is_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="an extra: pip install 'byrote[datasets]'")
    datasets.Dataset.from_dict({"text": ["one", "two"]}).save_to_disk(tmp_path)
    (rows,) = tmp_path.glob("*.arrow")
    content = rows.read_bytes()
    for place in range(0, len(content), 97):
        rows.write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
        with suppress(TextError):
            read(tmp_path)


def test_a_dataset_whose_rows_are_a_pipe_is_refused(tmp_path: Path) -> None:
    """The library would wait at it for ever."""
    datasets = pytest.importorskip("datasets", reason="an extra: pip install 'byrote[datasets]'")
    datasets.Dataset.from_dict({"text": ["one", "two"]}).save_to_disk(tmp_path)
    (rows,) = tmp_path.glob("*.arrow")
    rows.unlink()
    os.mkfifo(rows)
    with pytest.raises(TextError, match="cannot be read as a dataset"):
        read(tmp_path)
