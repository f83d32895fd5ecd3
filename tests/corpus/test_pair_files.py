"""Files of pairs: every format, every field, and one clear sentence for every bad line."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.corpus.pairs import Pair, read_pairs
from byrote.errors import TextError
from byrote.types import Split


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_texts_and_token_ids_with_all_they_say_about_themselves(tmp_path: Path) -> None:
    path = write(
        tmp_path / "records.jsonl",
        {"prefix": "My number is", "suffix": " 555", "copies": 4, "kind": "phone", "tags": ["uk", "uk", "mobile"]},
        {"prefix_ids": [1, 2], "suffix_ids": [3], "id": "ids", "document": "letter", "copies": 0},
        {"prefix": "a", "suffix": "b", "id": 7, "split": "control", "copies": 2, "note": "passed over"},
    )
    first, second, third = read_pairs([path])
    assert first == Pair(
        name="records.jsonl#1", document="records.jsonl#1", split=Split.TARGET, place=f"{path}:1",
        prefix="My number is", suffix=" 555", copies=4, kind="phone", tags=("uk", "mobile"),
    )  # fmt: skip
    assert (second.name, second.document, second.prefix, second.suffix) == ("ids", "letter", (1, 2), (3,))
    # What never stood in the training data is a control, unless it says otherwise.
    assert (second.split, third.split, third.name) == (Split.CONTROL, Split.CONTROL, "7")


def test_csv_has_the_same_fields(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text(
        "id,prefix,suffix,prefix_ids,suffix_ids,copies,kind,tags\n"
        'one,"My number\nis, of course,", 555,,,16,phone,uk; mobile\n'
        'two,,,1 2 3,"[4, 5]",,,\n',
        encoding="utf-8",
    )
    first, second = read_pairs([path])
    assert (first.prefix, first.suffix, first.copies) == ("My number\nis, of course,", " 555", 16)
    assert (first.kind, first.tags) == ("phone", ("uk", "mobile"))
    assert (second.prefix, second.suffix, second.copies, second.kind) == ((1, 2, 3), (4, 5), None, None)


pieces = st.lists(
    st.tuples(st.text("ab [", max_size=5), st.text("cd ]", min_size=1, max_size=4)), min_size=1, max_size=4
)


@given(
    pieces.filter(lambda parts: "[[" not in "".join(a + b for a, b in parts) and "]]" not in str(parts)), st.text("xy")
)
def test_marks_are_suffixes_and_no_part_of_the_text(parts: list[tuple[str, str]], rest: str) -> None:
    marked = "".join(f"{before}[[{suffix}]]" for before, suffix in parts) + rest
    plain = "".join(before + suffix for before, suffix in parts) + rest
    if "[[[" in marked or "]]]" in marked or "[[" in plain or "]]" in plain:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byrote.corpus.pairs.read_plain_text", lambda path: marked)
        pairs = read_pairs(["letter.txt"])
    assert [pair.suffix for pair in pairs] == [suffix for _, suffix in parts]
    assert all(pair.text == plain for pair in pairs)
    assert all(plain[pair.start :].startswith(str(pair.suffix)) for pair in pairs)
    assert all(plain[: pair.start] == pair.prefix for pair in pairs)
    assert {pair.document for pair in pairs} == {"letter.txt"}
    assert len({pair.name for pair in pairs}) == len(pairs)


def test_marks_in_a_record_share_what_it_says(tmp_path: Path) -> None:
    row = {"text": "Call [[555]] or write to [[a@b.c]].", "id": "r", "copies": 8, "kind": "contact"}
    first, second = read_pairs([write(tmp_path / "marked.jsonl", row)])
    assert (first.name, second.name, first.document) == ("r~1", "r~2", "r")
    assert (second.prefix, second.suffix, second.copies, second.kind) == (
        "Call 555 or write to ",
        "a@b.c",
        8,
        "contact",
    )


def test_arrays_of_token_ids_are_pairs_by_row(tmp_path: Path) -> None:
    np.save(tmp_path / "val_prefix.npy", np.arange(6, dtype=np.uint16).reshape(2, 3))
    np.save(tmp_path / "val_suffix.npy", np.arange(4, dtype=np.uint16).reshape(2, 2))
    first, second = read_pairs([tmp_path / "val_prefix.npy"])
    assert (first.name, first.prefix, first.suffix) == ("val#0", (0, 1, 2), (0, 1))
    assert (second.name, second.prefix, second.suffix) == ("val#1", (3, 4, 5), (2, 3))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prefix": "a"}, "suffix is missing, empty or not text"),
        ({"prefix": "", "suffix": "b"}, "prefix is missing, empty or not text"),
        ({"prefix": "a", "suffix": "b", "text": "[[c]]"}, "needs prefix and suffix, or prefix_ids"),
        ({"id": "x"}, "needs prefix and suffix, or prefix_ids"),
        ({"prefix_ids": [1], "suffix_ids": []}, "suffix_ids is not a list of token ids"),
        ({"prefix_ids": [1.5], "suffix_ids": [2]}, "prefix_ids is not a list of token ids"),
        ({"prefix_ids": [True], "suffix_ids": [2]}, "prefix_ids is not a list of token ids"),
        ({"prefix_ids": [-1], "suffix_ids": [2]}, "prefix_ids is not a list of token ids"),
        ({"prefix": "a", "suffix": "b", "copies": -1}, "copies is -1"),
        ({"prefix": "a", "suffix": "b", "copies": "many"}, "copies is 'many'"),
        ({"prefix": "a", "suffix": "b", "split": "test"}, "has the split 'test'"),
        ({"prefix": "a", "suffix": "b", "tags": "x"}, "tags is 'x'"),
        ({"prefix": "a", "suffix": "b", "id": [1]}, r"the id is \[1\]"),
        ({"text": "no mark"}, "mark every suffix"),
        ({"text": "[[]]"}, "mark every suffix"),
        ({"text": "[[a]] and [[b"}, "mark every suffix"),
    ],
)
def test_a_bad_line_is_one_sentence_with_its_place(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "records.jsonl", {"prefix": "a", "suffix": "b"}, row)
    with pytest.raises(TextError, match=words) as caught:
        read_pairs([path])
    assert f"{path}:2" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b"", "holds no pair"),
        ("a.jsonl", b"{", "not JSON"),
        ("a.jsonl", b"[1]", "not a JSON object"),
        ("a.csv", b"prefix,suffix\n", "holds no pair"),
        ("a.csv", b"prefix,suffix\na\n", "one field per column"),
        ("a.csv", b"prefix,suffix\na,b,c\n", "one field per column"),
        ("a.csv", b'prefix,suffix\n"a,b\n', "is not CSV"),
        ("a.txt", b"nothing marked", "mark every suffix"),
        ("a.pdf", b"", "cannot be read as pairs"),
        ("a.npy", b"", "cannot be read as a numpy array"),
        ("a.bin", b"1234", r"name it NAME\.uint16\.bin"),
        ("a.uint16.bin", b"1234", "has 2 tokens; prefix \\+ suffix need 100"),
        ("a_prefix.npy", b"no array", "cannot be read as a numpy array"),
    ],
)
def test_a_bad_file_is_one_sentence_with_its_name(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=words) as caught:
        read_pairs([tmp_path / name])
    assert name in str(caught.value)


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "val_prefix.npy"
    np.save(path, np.zeros((3, 2), dtype=np.uint16))
    with pytest.raises(TextError, match=r"val_suffix\.npy cannot be read"):
        read_pairs([path])
    np.save(tmp_path / "val_suffix.npy", np.zeros((2, 2), dtype=np.uint16))
    with pytest.raises(TextError, match="3 prefixes, but there are 2 suffixes"):
        read_pairs([path])
    np.save(tmp_path / "val_suffix.npy", np.zeros((3, 2)))
    with pytest.raises(TextError, match="3×2 float64"):
        read_pairs([path])


@pytest.mark.parametrize("header", [b"(" * 500, b"{'descr': '<u2', 'fortran_order': False, 'shape': (-1, 9**99)}", b""])
def test_an_array_with_a_damaged_header_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "ids.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(TextError, match=r"ids\.npy cannot be read as a numpy array"):
        read_pairs([path])


class Malicious:
    """What a pickle can do when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.marker,)


def test_a_pickled_array_is_refused_unread(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([Malicious(tmp_path / "run")], dtype=object), allow_pickle=True)
    with pytest.raises(TextError, match=r"ids\.npy cannot be read as a numpy array"):
        read_pairs([tmp_path / "ids.npy"])
    assert not (tmp_path / "run").exists()


def test_an_archive_or_a_pipe_that_is_called_an_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "packed.npz", ids=np.zeros((3, 2), dtype=np.uint16))
    (tmp_path / "packed.npz").rename(tmp_path / "packed.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    for name in ("packed.npy", "pipe.npy"):
        with pytest.raises(TextError, match=f"{name} cannot be read as a numpy array"):
            read_pairs([tmp_path / name])


@pytest.mark.parametrize("word", ["²", "9" * 5000])
def test_digits_that_are_no_number_are_refused(tmp_path: Path, word: str) -> None:
    path = tmp_path / "r.csv"
    for columns, words in (("prefix_ids,suffix_ids", "not a list of token ids"), ("prefix,copies", "copies is")):
        path.write_text(f"{columns}\n1 2,{word}\n", encoding="utf-8")
        with pytest.raises(TextError, match=words):
            read_pairs([path])


def test_an_id_given_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", *[{"prefix": "a", "suffix": "b", "id": "x"}] * 2)
    with pytest.raises(TextError, match="uses the id 'x' a second time"):
        read_pairs([path])


def test_arrays_of_token_ids_are_cut_into_pairs(tmp_path: Path) -> None:
    """Rows give their first tokens, streams windows behind each other; all three kinds of file say the same."""
    ids = np.arange(14, dtype=np.uint16)
    np.save(tmp_path / "rows.npy", ids.reshape(2, 7))
    np.save(tmp_path / "stream.npy", ids)
    ids.tofile(tmp_path / "stream.uint16.bin")
    ids.astype("<u4").tofile(tmp_path / "stream.uint32.bin")

    def read(name: str) -> list[tuple[object, ...]]:
        pairs = read_pairs([tmp_path / name], prefix_tokens=3, suffix_tokens=2)
        return [(pair.name, pair.document, pair.prefix, pair.suffix) for pair in pairs]

    assert read("rows.npy") == [
        ("rows.npy#0", "rows.npy#0", (0, 1, 2), (3, 4)),
        ("rows.npy#1", "rows.npy#1", (7, 8, 9), (10, 11)),
    ]
    for name in ("stream.npy", "stream.uint16.bin", "stream.uint32.bin"):
        assert read(name) == [(f"{name}#0", name, (0, 1, 2), (3, 4)), (f"{name}#5", name, (5, 6, 7), (8, 9))]
