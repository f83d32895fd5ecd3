"""Only regular files are read, at once; JSON within limits."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.files import parse_json, read_bytes, require_regular


def test_a_regular_file_is_read_whole_or_in_part_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    (tmp_path / "b").symlink_to("a")
    assert read_bytes(tmp_path / "b") == b"abcdef"
    assert read_bytes(tmp_path / "a", most=3) == b"abc"


def make(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "folder":
        path.mkdir()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pipe", "it is a pipe, not a file"),
        ("device", "it is a device, not a file"),
        ("folder", "it is a folder"),
        ("loop", "Too many levels of symbolic links"),
        ("nothing", "No such file or directory"),
    ],
)
def test_anything_else_is_refused_without_waiting(tmp_path: Path, kind: str, words: str) -> None:
    """Nobody writes into the pipe: reading it would wait forever."""
    make(kind, tmp_path / "x")
    for read in (require_regular, read_bytes):
        with pytest.raises(OSError, match=words) as refused:
            read(tmp_path / "x")
        assert refused.value.strerror == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "a name is given twice"),
        ('{"a": {"b": 1, "b": 1}}', "a name is given twice"),
        ("9" * 5000, "Exceeds the limit"),
        ("", "Expecting value"),
        ("{", "Expecting property name"),
    ],
)
def test_json_beyond_the_limits_is_a_value_error(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_json(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(values)
def test_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    import json

    assert parse_json(json.dumps(value)) == value
