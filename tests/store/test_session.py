"""The life of a session: parts by number and by time, interruptions, blocks, texts, and completing again."""

import math
import os
import shutil
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from run_samples import IDENTITY, MANIFEST, Killed, add, killed_at, open_session, window_id

from byrote.corpus.read import Document
from byrote.errors import DamageError, RunError
from byrote.store import parts
from byrote.store import resume as sessions
from byrote.store import tables as store_texts
from byrote.store.columns import Column, Schema
from byrote.store.manifest import read_identity
from byrote.store.read import read_run, verify_run
from byrote.store.resume import STOPPING, RunSession
from byrote.store.tables import read_table
from byrote.types import Split


def parts_of(path: Path) -> list[list[str]]:
    """Window ids of every part but the empty first one."""
    files = sorted(file for file in (path / "parts").iterdir() if file.name.startswith("part-"))
    return [read_table(file).column("window_id").to_pylist() for file in files[1:]]


def test_parts_are_written_by_number_of_windows(tmp_path: Path) -> None:
    with open_session(tmp_path, part_rows=2) as session:
        add(session, 0, 1, 2)
        assert parts_of(tmp_path) == [[window_id(0), window_id(1)]]
    assert parts_of(tmp_path) == [[window_id(0), window_id(1)], [window_id(2)]]


def test_a_long_run_writes_longer_parts_resumed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that resuming need not open a file for every few windows."""
    monkeypatch.setattr(parts, "PARTS_OF_LEAST", 2)
    with open_session(tmp_path, part_rows=2) as session:
        add(session, *range(10))
    with open_session(tmp_path, part_rows=2) as session:
        add(session, *range(10, 20))
    assert [len(part) for part in parts_of(tmp_path)] == [2, 2, 2, 3, 1, 5, 5]
    with open_session(tmp_path, part_rows=2) as session:
        add(session, *range(20, 200))
    assert max(len(part) for part in parts_of(tmp_path)) == 2 * parts.MOST_TIMES_LEAST


def test_parts_are_written_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    with open_session(tmp_path, part_rows=1000) as session:
        now = 129.0
        add(session, 0)
        assert parts_of(tmp_path) == []
        now = 130.0
        add(session, 1)
        assert parts_of(tmp_path) == [[window_id(0), window_id(1)]]
        add(session, 2)
        assert len(parts_of(tmp_path)) == 1
        now = 1000.0
        add(session, 3)
        assert parts_of(tmp_path)[1] == [window_id(2), window_id(3)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interrupted_session_keeps_every_finished_window(tmp_path: Path, error: type[BaseException]) -> None:
    with suppress(error), open_session(tmp_path) as session:
        add(session, 0, 1, 2)
        raise error
    with open_session(tmp_path) as session:
        assert session.finished_ids() == {window_id(index) for index in (0, 1, 2)}


class Stopped(Exception):
    """Raised by the handler of a signal."""


def stop(*_: object) -> None:
    raise Stopped


class SignalAt:
    """A call of the operating system that sends this process a signal when it is made for the n-th time."""

    def __init__(self, number: signal.Signals, calls: list[int], call: Callable[..., Any]) -> None:
        self.number, self.calls, self.call = number, calls, call

    def __call__(self, *arguments: Any) -> Any:
        self.calls[0] -= 1
        if self.calls[0] == 0:
            signal.raise_signal(self.number)
        return self.call(*arguments)


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("step", range(1, 10))
def test_a_signal_while_a_part_is_written_waits_until_it_is(
    tmp_path: Path, number: signal.Signals, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files and their list, each flushed, renamed, and its folder flushed: the signal comes at every step."""
    left = [step]
    with open_session(tmp_path) as session:
        add(session, 0, 1)
        before = signal.signal(number, stop)
        try:
            with monkeypatch.context() as patch:
                for name in ("fsync", "replace"):
                    patch.setattr(os, name, SignalAt(number, left, getattr(os, name)))
                with pytest.raises(Stopped):
                    session.flush()
        finally:
            signal.signal(number, before)
        assert left == [step - 9]
        assert parts_of(tmp_path) == [[window_id(0), window_id(1)]]
        assert session.finished_ids() == {window_id(0), window_id(1)}


BLOCK: Schema = (Column("sums", "list[float64]"),)


def test_blocks_come_back_until_the_run_is_complete(tmp_path: Path) -> None:
    rows = [{"sums": [-math.inf, 0.1 + 0.2]}, {"sums": []}]
    with open_session(tmp_path) as session:
        assert session.read_block("one") is None
        session.write_block("one", rows, BLOCK)
    with open_session(tmp_path) as session:
        assert session.read_block("one") == rows
        session.complete(MANIFEST)
    assert not (tmp_path / "blocks").exists()


def test_a_damaged_block_is_computed_again_and_one_of_another_run_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with open_session(tmp_path / name) as session:
            session.write_block("one", [{"sums": [1.0]}], BLOCK)
    block = Path("blocks", "one.parquet")
    shutil.copy(tmp_path / "a" / block, tmp_path / "b" / block)
    with open_session(tmp_path / "b") as session, pytest.raises(RunError, match="not of this run"):
        session.read_block("one")
    os.truncate(tmp_path / "a" / block, 100)
    with open_session(tmp_path / "a") as session:
        assert session.read_block("one") is None


def test_fresh_start_killed_at_any_call_never_reads_a_block_of_the_run_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hotter = {"config": {"temperature": 2.0}}
    for call in range(12):
        path = tmp_path / str(call)
        with open_session(path) as session:
            session.write_block("one", [{"sums": [1.0]}], BLOCK)
        with suppress(Killed), killed_at(call, monkeypatch):
            open_session(path, fresh=True, identity=hotter).close()
        stored = read_identity(path / "identity.json")
        assert stored is not None
        if stored.values == hotter:
            with open_session(path, identity=hotter) as session:
                assert session.read_block("one") is None


@pytest.mark.parametrize(("characters", "texts"), [(1 << 24, 1 << 16), (7, 1 << 16), (1 << 24, 2)])
def test_texts_in_several_batches_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: int, texts: int
) -> None:
    monkeypatch.setattr(store_texts, "BATCH_CHARACTERS", characters)
    monkeypatch.setattr(store_texts, "BATCH_TEXTS", texts)
    documents = [Document.from_text(f"{number}.txt", "word " * number, split=Split.TARGET) for number in range(5)]
    with open_session(tmp_path) as session:
        session.write_texts(documents)
        session.write_texts(documents)
    stored = read_table(tmp_path / "texts.parquet").to_pylist()
    assert [(row["name"], row["text"]) for row in stored] == [(one.name, one.text) for one in documents]
    verify_run(tmp_path)


def test_texts_are_written_once_and_again_when_damaged(tmp_path: Path) -> None:
    documents = [Document.from_text("a.txt", "on\r\nce", split=Split.TARGET)]
    with open_session(tmp_path) as session:
        session.write_texts(documents)
        first = (tmp_path / "texts.parquet").stat().st_mtime_ns
        session.write_texts(documents)
        assert (tmp_path / "texts.parquet").stat().st_mtime_ns == first
    os.truncate(tmp_path / "texts.parquet", 50)
    with open_session(tmp_path) as session:
        session.write_texts(documents)
        session.complete(MANIFEST)
    texts = read_run(tmp_path).texts
    assert texts is not None
    assert texts["text"].to_list() == ["on\r\nce"]


def test_a_run_can_be_opened_again_and_completed_again(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("one")
    for content in ("one", "two"):
        with RunSession.open(tmp_path / "run", kind="audit", identity=IDENTITY) as session:
            session.reopen()
            (tmp_path / "run" / "journal").write_text(content)
            session.bind(tmp_path / "run" / "journal")
            session.complete(MANIFEST)
        assert verify_run(tmp_path / "run").manifest is not None
    assert stat.S_IMODE((tmp_path / "run" / "manifest.json").stat().st_mode) == 0o600
    (tmp_path / "run" / "journal").write_text("six")
    with pytest.raises(DamageError, match="journal"):
        verify_run(tmp_path / "run")
