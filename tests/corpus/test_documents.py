"""Documents: every format, stable readable names, exact text, and one clear sentence for every bad file."""

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.corpus.read import Document, combine_documents, read_corpus, read_documents
from byrote.errors import TextError
from byrote.types import Split


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def names(*sources: str | Path) -> list[str]:
    return [document.name for document in read_documents(sources, split=Split.TARGET)]


def test_text_file_is_one_document_with_its_content_hash(tmp_path: Path) -> None:
    path = write(tmp_path / "alice.txt", "Down the\r\nrabbit hole…\n")
    [document] = read_documents([path], split=Split.CONTROL)
    text = "Down the\r\nrabbit hole…\n"
    assert document.held() == Document(
        "alice.txt", Split.CONTROL, hashlib.sha256(text.encode()).hexdigest(), len(text), text
    )


def test_byte_order_mark_is_removed_and_newlines_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md", b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_documents([path], split=Split.TARGET)[0].text == "one\r\ntwo\rthree\n"


def test_jsonl_gives_one_document_a_line_named_by_id_or_line(tmp_path: Path) -> None:
    lines = [{"text": "one", "id": "anna"}, {"text": "two\u2028still two"}, {"text": "three", "id": 7}]
    path = write(tmp_path / "people.jsonl", "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n")
    documents = read_documents([path], split=Split.TARGET)
    assert [(document.name, document.text) for document in documents] == [
        ("people.jsonl#anna", "one"),
        ("people.jsonl#3", "two\u2028still two"),
        ("people.jsonl#7", "three"),
    ]


def test_parquet_gives_one_document_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": ["x", None], "text": ["one", "two"], "other": [1, 2]}), path)
    assert [(d.name, d.text) for d in read_documents([path], split=Split.TARGET)] == [
        ("rows.parquet#x", "one"),
        ("rows.parquet#2", "two"),
    ]


def test_records_with_one_id_are_told_apart(tmp_path: Path) -> None:
    rows = [{"text": "a", "id": "x"}, {"text": "b", "id": "x~2"}, {"text": "c", "id": "x"}, {"text": "d", "id": "x"}]
    path = write(tmp_path / "r.jsonl", "\n".join(map(json.dumps, rows)))
    assert names(path) == ["r.jsonl#x", "r.jsonl#x~2", "r.jsonl#x~3", "r.jsonl#x~4"]


def test_folder_is_read_recursively_in_sorted_order_without_hidden_or_other_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.MD", "a/b/c.txt", ".hidden/x.txt", "a/.y.txt", "picture.png"):
        write(tmp_path / "books" / name, "text")
    assert names(tmp_path / "books") == ["a/b/c.txt", "a/z.MD", "b.txt"]


def test_glob_names_are_relative_to_its_fixed_part(tmp_path: Path) -> None:
    for name in ("books/one/a.txt", "books/two/a.txt", "books/two/b.pdf"):
        write(tmp_path / name, "text")
    assert names(f"{tmp_path}/books/*/a.txt") == ["one/a.txt", "two/a.txt"]
    assert names(f"{tmp_path}/books/**/*.txt") == ["one/a.txt", "two/a.txt"]
    assert names(f"{tmp_path}/books/t*") == ["two/a.txt"]


def test_file_whose_name_looks_like_a_glob_is_read_as_it_is(tmp_path: Path) -> None:
    assert names(write(tmp_path / "part [1].txt", "text")) == ["part [1].txt"]


def test_file_reached_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "text")
    (tmp_path / "link.txt").symlink_to(path)
    assert names(path, tmp_path, f"{tmp_path}/*.txt") == ["a.txt"]


def test_clashing_names_get_as_many_parent_folders_as_it_takes(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, name) for name in ("x/one/a.txt", "y/one/a.txt", "y/two/a.txt", "y/two/b.txt")]
    assert names(*paths) == ["x/one/a.txt", "y/one/a.txt", "two/a.txt", "b.txt"]


@pytest.mark.parametrize("name", ["日本語 “x”.txt", "a@12.txt", "new\nline.txt", "~tilde.txt", "#hash.txt"])
def test_odd_file_names_are_kept(tmp_path: Path, name: str) -> None:
    assert names(write(tmp_path / name, "text")) == [name]


def test_file_name_that_is_not_utf8_becomes_a_storable_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text("text")
    assert names(tmp_path) == ["caf\\xe9.txt"]


@pytest.mark.parametrize(
    ("file_name", "content", "sentence"),
    [
        ("a.txt", b"abc\xff", "not UTF-8 text: byte 0xff at offset 3"),
        ("a.txt", b"\xef\xbb\xbfab\xff", "byte 0xff at offset 5"),
        ("a.txt", b"ab\x00cd", "binary file: zero byte at offset 2"),
        ("a.txt", b"", "holds no text"),
        ("a.md", b" \n\t ", "holds no text"),
        ("a.jsonl", b"", "holds no text"),
        ("a.jsonl", b'{"text": ""}', "holds no text"),
        ("a.jsonl", b'{"text": "x"}\n{"text": ', "line 2: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}', "not UTF-8 text: byte 0xff at offset 24"),
        ("a.jsonl", b'\xef\xbb\xbf{"text": "a\xff"}', "byte 0xff at offset 14"),
        ("a.jsonl", b'{"text": "a"}\n\x00', "binary file: zero byte at offset 14"),
        ("a.jsonl", b"[1]", "line 1: not a JSON object"),
        ("a.jsonl", b'{"body": "x"}', "line 1: field 'text' is missing"),
        ("a.jsonl", b'{"text": 3}', "line 1: field 'text' is missing or not a string"),
        ("a.jsonl", b'{"text": "x", "id": [1]}', "line 1: field 'id' is list"),
        ("a.jsonl", b'{"text": "x\\ud800"}', "half of a surrogate pair"),
        ("a.jsonl", b'{"text": ' + b"[" * 100_000, "line 1: not JSON (nested too deeply)"),
        ("a.jsonl", b'{"text": "a", "id": ' + b"9" * 5000 + b"}", "line 1: not JSON (Exceeds the limit"),
        ("a.jsonl", b'{"text": "a", "text": "b"}', "line 1: not JSON (a name is given twice)"),
        ("a.parquet", b"PAR1 not really", "cannot be read as Parquet"),
        ("a.pdf", b"%PDF", "cannot be read as text"),
    ],
)
def test_unreadable_file_is_one_sentence_with_its_place(
    tmp_path: Path, file_name: str, content: bytes, sentence: str
) -> None:
    path = write(tmp_path / file_name, content)
    with pytest.raises(TextError, match=file_name) as caught:
        read_documents([path], split=Split.TARGET)
    assert sentence in str(caught.value)


def test_parquet_that_is_not_utf_8_is_one_sentence(tmp_path: Path) -> None:
    buffers = [None, *map(pa.py_buffer, (b"\0\0\0\0\2\0\0\0", b"\xff\xfe"))]
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 1, buffers)}), tmp_path / "a.parquet")
    with pytest.raises(TextError, match=r"a\.parquet cannot be read as Parquet: row 0 or later is not UTF-8 text\."):
        read_documents([tmp_path / "a.parquet"], split=Split.TARGET)


def test_parquet_with_dates_out_of_range_is_one_sentence(tmp_path: Path) -> None:
    table = pa.table({"text": ["x"], "id": pa.array([2**62], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(TextError, match=r"a\.parquet cannot be read as Parquet: "):
        read_documents([tmp_path / "a.parquet"], split=Split.TARGET)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("through", ["file", "folder", "glob"])
def test_pipes_and_loops_of_links_are_refused_at_once(tmp_path: Path, name: str, through: str) -> None:
    """Nobody writes into the pipe: reading it would wait forever."""
    source = {"file": tmp_path / name, "folder": tmp_path, "glob": tmp_path / "a*"}[through]
    os.mkfifo(tmp_path / name)
    with pytest.raises(TextError, match=r"cannot be read: it is a pipe, not a file\.$"):
        read_documents([source], split=Split.TARGET)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(name)
    with pytest.raises(TextError, match=r"cannot be read: Too many levels of symbolic links\.$"):
        read_documents([source], split=Split.TARGET)


@pytest.mark.parametrize("source", ["~nobody-here/a.txt", "x" * 5000, "/dev/null", "/dev/zero.txt"])
def test_names_that_lead_to_no_text_are_refused(source: str) -> None:
    with pytest.raises(TextError, match=r"does not exist|cannot be read"):
        read_documents([source], split=Split.TARGET)


def test_parquet_without_text_column_names_what_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["x"], "year": [1]}), tmp_path / "a.parquet")
    with pytest.raises(TextError, match="no column 'text' \\(it has body, year\\)"):
        read_documents([tmp_path / "a.parquet"], split=Split.TARGET)


def test_parquet_with_a_missing_text_names_the_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x", None]}), tmp_path / "a.parquet")
    with pytest.raises(TextError, match="row 2: field 'text' is missing"):
        read_documents([tmp_path / "a.parquet"], split=Split.TARGET)


@pytest.mark.parametrize("source", ["absent.txt", "absent/*.txt", "empty", "*.pdf"])
def test_source_without_text_is_refused_by_name(tmp_path: Path, source: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TextError) as caught:
        read_documents([tmp_path / source], split=Split.TARGET)
    assert source in str(caught.value)


def test_no_source_at_all_is_refused() -> None:
    with pytest.raises(TextError, match="No control text"):
        read_documents([], split=Split.CONTROL)


def test_empty_record_among_others_stays_a_document(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "x"}\n{"text": ""}')
    assert [document.text for document in read_documents([path], split=Split.TARGET)] == ["x", ""]


def test_target_and_control_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("t/a.txt", "t/b.txt", "c/a.txt"):
        write(tmp_path / name, name)
    documents = read_corpus([tmp_path / "t"], [tmp_path / "c"])
    assert [(document.name, document.split.value) for document in documents] == [
        ("target/a.txt", "target"),
        ("b.txt", "target"),
        ("control/a.txt", "control"),
    ]


def test_text_that_is_its_own_control_is_refused(tmp_path: Path) -> None:
    for name in ("t/a.txt", "c/b.txt"):
        write(tmp_path / name, "the very same words")
    with pytest.raises(TextError, match=r"Control 'b.txt' has the same content as target 'a.txt'"):
        read_corpus([tmp_path / "t"], [tmp_path / "c"])


@given(st.lists(st.tuples(st.sampled_from(["a", "target/a", "control/a", "a~2"]), st.sampled_from(Split)), unique=True))
@settings(deadline=None)
def test_combined_names_are_unique_and_order_is_kept(keys: list[tuple[str, Split]]) -> None:
    documents = [Document.from_text(name, f"{name} {split}", split=split) for name, split in keys]
    combined = combine_documents(documents)
    assert [document.text for document in combined] == [document.text for document in documents]
    assert len({document.name for document in combined}) == len(documents)


def test_two_documents_of_one_name_in_one_split_are_refused() -> None:
    documents = [Document.from_text("a", text, split=Split.TARGET) for text in ("one", "two")]
    with pytest.raises(TextError, match="2 documents are named 'a'"):
        combine_documents(documents)


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text and not text.startswith("\ufeff")))
@settings(deadline=None)
def test_any_unicode_text_comes_back_unchanged(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write(tmp_path_factory.mktemp("any") / "a.txt", text)
    assert read_documents([path], split=Split.TARGET)[0].text == text
