"""A journal whose lines hold each other: whatever is changed in it is found, and said by name."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.longform.audits import InProcess, invented_book, make_run
from tests.longform.test_audit_resume import run_in_process
from tests.loopback.brains import KnowsByHeart

from byrote.errors import RunError
from byrote.longform.journal import AuditJournal
from byrote.store.journal import BrokenChain, chained_line, chained_records, first_hash, read_records

BOOK = invented_book(260)


def chain(*records: dict[str, object], run_id: str = "r") -> bytes:
    content, before = b"", first_hash(run_id)
    for record in records:
        line, before = chained_line(record, before)
        content += line
    return content


def read(content: bytes, run_id: str | None = "r") -> list[dict[str, object]]:
    return [line.record for line in chained_records(io.BytesIO(content), run_id)]


RECORDS: list[dict[str, object]] = [{"kind": "a", "text": "ä\ud800\n"}, {"kind": "b"}, {"kind": "c", "n": [1, None]}]
CONTENT = chain(*RECORDS)


def test_records_come_back_as_they_were_written() -> None:
    assert read(CONTENT) == RECORDS
    assert read(CONTENT, None) == RECORDS
    assert read(b"") == []
    assert all(json.loads(line) for line in CONTENT.splitlines()), "every line is plain JSON"


@given(place=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
@settings(max_examples=400, deadline=None)
def test_no_flipped_bit_goes_unnoticed(place: int, bit: int) -> None:
    flipped = bytearray(CONTENT)
    flipped[place] ^= 1 << bit
    with pytest.raises(BrokenChain, match=r"line \d"):
        read(bytes(flipped))


def test_what_a_kill_cut_off_is_dropped_and_nothing_else() -> None:
    ends = [n for n in range(len(CONTENT)) if CONTENT[n : n + 1] == b"\n"]
    for cut in range(len(CONTENT) + 1):
        # A line without its line end is whole: only the end was cut off.
        assert read(CONTENT[:cut]) == RECORDS[: sum(end <= cut for end in ends)]


LINES = CONTENT.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"".join([LINES[1], LINES[0], LINES[2]]), "line 1 belongs to another run"),
        (b"".join([LINES[0], LINES[2]]), "line 2 does not follow the one before"),
        (b"".join([LINES[0], LINES[0], LINES[1]]), "line 2 does not follow the one before"),
        (chain(*RECORDS, run_id="another"), "line 1 belongs to another run"),
        (b'{"kind": "intent"}\n', "line 1 is not a line of a journal with hashes"),
        (CONTENT + b"\n", "line 4 is not a line"),
    ],
)
def test_lines_moved_lost_repeated_or_foreign_are_named(content: bytes, message: str) -> None:
    with pytest.raises(BrokenChain, match=message):
        read(content)


def test_a_journal_of_another_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    server = InProcess(KnowsByHeart(BOOK))
    for name in ("one", "two"):
        run_in_process(make_run(BOOK, tmp_path / name), server)
    foreign = (tmp_path / "one" / "journal.jsonl").read_bytes()
    (tmp_path / "two" / "manifest.json").unlink()
    (tmp_path / "two" / "journal.jsonl").write_bytes(foreign)
    with pytest.raises(
        RunError, match=r"journal.jsonl is damaged: line 1 belongs to another run\. It is left as it is"
    ):
        run_in_process(make_run(BOOK, tmp_path / "two"), server)
    assert (tmp_path / "two" / "journal.jsonl").read_bytes() == foreign
    assert list(read_records(tmp_path / "one" / "journal.jsonl"))


def test_a_journal_cut_before_its_last_line_end_goes_on_in_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for number in range(3):
        journal = AuditJournal.open(path, "r")
        journal.append({"kind": "authorisation", "statement": f"ticket {number}"})
        journal.close()
        path.write_bytes(path.read_bytes()[:-1])
    assert [record["statement"] for record in read_records(path, "r")] == ["ticket 0", "ticket 1", "ticket 2"]
