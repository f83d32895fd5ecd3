"""A run survives being killed at any file-system call, a full disk and damaged files: no row lost, none twice."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_samples import (
    CONTINUATIONS,
    IDENTITY,
    MANIFEST,
    SCHEMA,
    Killed,
    continuations_of,
    killed_at,
    open_session,
    result_row,
    scan,
    window_id,
    write_part,
)

from byrote.errors import DamageError, RunError, StorageError
from byrote.store import files as atomic
from byrote.store.columns import Column
from byrote.store.read import read_run
from byrote.store.resume import RunSession

INDICES = [3, 1, 4, 0, 5]


def assert_complete_and_equal_to_an_uninterrupted_run(path: Path, indices: list[int]) -> None:
    run = read_run(path)
    assert run.is_complete
    assert run.manifest is not None
    assert MANIFEST.items() <= run.manifest.items()
    assert run.results.to_dicts() == [result_row(index) for index in indices]
    assert run.continuations is not None
    assert run.continuations.to_dicts() == continuations_of(indices)
    assert sorted(os.listdir(path)) == [
        ".lock",
        "continuations.parquet",
        "identity.json",
        "manifest.json",
        "results.parquet",
    ]


def test_run_is_stored_in_window_order_with_every_column(tmp_path: Path) -> None:
    assert scan(tmp_path / "run", INDICES) == INDICES[::-1]
    assert_complete_and_equal_to_an_uninterrupted_run(tmp_path / "run", INDICES)


def test_scanning_a_complete_run_again_measures_nothing(tmp_path: Path) -> None:
    scan(tmp_path, INDICES)
    assert scan(tmp_path, INDICES) == []
    with open_session(tmp_path) as session:
        assert session.is_complete
        assert session.finished_ids() == {window_id(index) for index in INDICES}
        with pytest.raises(RunError, match="is complete"):
            write_part(session, 9)


def number_of_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    with killed_at(10**9, monkeypatch) as log:
        scan(path, INDICES)
    return len(log)


def test_run_killed_at_any_call_resumes_without_repeating_finished_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = number_of_calls(tmp_path / "uninterrupted", monkeypatch)
    assert calls > 30
    for call in range(calls):
        path = tmp_path / f"killed at {call}"
        with killed_at(call, monkeypatch) as log, pytest.raises(Killed):
            scan(path, INDICES)
        parts_before = log.count("replace")
        with open_session(path) as session:
            finished = session.finished_ids()
        # identity, the list of parts, two files of part 0 and the list, then as many a part of two windows: only whole
        # parts count, also one that is not listed yet.
        assert len(finished) == min(len(INDICES), 2 * max(0, (parts_before - 4) // 3))
        measured = scan(path, INDICES)
        assert finished.isdisjoint(map(window_id, measured))
        assert len(finished) + len(measured) == len(INDICES)
        assert_complete_and_equal_to_an_uninterrupted_run(path, INDICES)


@given(kills=st.lists(st.integers(0, 40), max_size=4), part_size=st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_run_killed_again_and_again_still_completes(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], part_size: int
) -> None:
    path = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for call in kills:
            try:
                with killed_at(call, monkeypatch):
                    scan(path, INDICES, part_size=part_size)
            except Killed:
                pass
    scan(path, INDICES, part_size=part_size)
    assert_complete_and_equal_to_an_uninterrupted_run(path, INDICES)


def test_fresh_start_killed_at_any_call_leaves_a_run_that_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(12):
        path = tmp_path / str(call)
        scan(path, INDICES)
        with killed_at(call, monkeypatch), pytest.raises(Killed):
            scan(path, INDICES, fresh=True)
        scan(path, INDICES)
        assert_complete_and_equal_to_an_uninterrupted_run(path, INDICES)


def interrupted(path: Path) -> list[Path]:
    """A run with two parts of two windows, not completed; the files of its parts."""
    with open_session(path) as session:
        for part in ([0, 1], [2, 5]):
            write_part(session, *part)
    return sorted((path / "parts").iterdir())


@given(file=st.integers(0, 5), cut=st.floats(0, 1, exclude_max=True))
@settings(max_examples=40, deadline=None)
def test_part_cut_at_any_byte_is_measured_again(
    tmp_path_factory: pytest.TempPathFactory, file: int, cut: float
) -> None:
    path = tmp_path_factory.mktemp("run")
    victim = interrupted(path)[file]
    os.truncate(victim, int(cut * victim.stat().st_size))
    finished = {name: ids for name, ids in (("1", {0, 1}), ("2", {2, 5})) if name not in victim.name}
    dropped = victim.name.replace("continuations", "part")
    with pytest.warns(UserWarning, match=f"{dropped} was damaged or is missing"), open_session(path) as session:
        assert session.finished_ids() == {window_id(index) for ids in finished.values() for index in ids}
    scan(path, [0, 1, 2, 5])
    assert_complete_and_equal_to_an_uninterrupted_run(path, [0, 1, 2, 5])


@given(file=st.sampled_from(["part-000001.parquet", "continuations-000001.parquet"]), place=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_part_with_a_flipped_byte_is_measured_again(
    tmp_path_factory: pytest.TempPathFactory, file: str, place: float
) -> None:
    path = tmp_path_factory.mktemp("run")
    interrupted(path)
    victim = path / "parts" / file
    content = bytearray(victim.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0xFF
    victim.write_bytes(content)
    with pytest.raises(DamageError, match=file):
        read_run(path)
    with pytest.warns(UserWarning, match="part-000001.parquet was damaged"):
        assert scan(path, [0, 1, 2, 5]) == [1, 0]
    assert_complete_and_equal_to_an_uninterrupted_run(path, [0, 1, 2, 5])


def test_results_without_their_continuations_do_not_count(tmp_path: Path) -> None:
    interrupted(tmp_path)
    (tmp_path / "parts" / "continuations-000002.parquet").unlink()
    with pytest.warns(UserWarning, match=r"part-000002\.parquet"), open_session(tmp_path) as session:
        assert session.finished_ids() == {window_id(0), window_id(1)}
    assert not (tmp_path / "parts" / "part-000002.parquet").exists()


def test_leftover_temporary_files_are_removed_and_others_kept(tmp_path: Path) -> None:
    interrupted(tmp_path)
    dead, alive = ended_process(), os.getpid()
    leftovers = [
        tmp_path / "parts" / f".part-000003.parquet.{alive}.byrote-tmp",
        tmp_path / f".results.parquet.{dead}.byrote-tmp",
        tmp_path / f".results.csv.{dead}.byrote-tmp",
        tmp_path / "report" / "figures" / f".a.svg.{dead}.byrote-tmp",
        tmp_path / "generations" / f".two\nlines.txt.{alive}.byrote-tmp",
    ]
    # Reports and exports are written without the lock: those of a process that lives are left alone.
    kept = [
        tmp_path / "notes.txt",
        tmp_path / "parts" / "mine.parquet",
        tmp_path / f".results.csv.{alive}.byrote-tmp",
        tmp_path / "report" / f".index.html.{alive}.byrote-tmp",
    ]
    for path in leftovers + kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    with open_session(tmp_path) as session:
        assert len(session.finished_ids()) == 4
    assert not any(path.exists() for path in leftovers)
    assert all(path.exists() for path in kept)


def ended_process() -> int:
    """The number of a process that is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, refuse)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_full_disk_while_writing_a_part_loses_nothing_finished(tmp_path: Path, call: str) -> None:
    with open_session(tmp_path) as session, pytest.MonkeyPatch.context() as monkeypatch:
        write_part(session, 0, 1)
        full_disk(monkeypatch, call)
        with pytest.raises(StorageError, match="No space left on device"):
            write_part(session, 2)
        assert session.finished_ids() == {window_id(0), window_id(1)}
    assert not [name for name in os.listdir(tmp_path / "parts") if name.endswith("byrote-tmp")]
    assert scan(tmp_path, [0, 1, 2]) == [2]
    assert_complete_and_equal_to_an_uninterrupted_run(tmp_path, [0, 1, 2])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_device_without_space_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write itself fails here, inside Arrow, not the flush after it."""
    with open_session(tmp_path) as session:
        write_part(session, 0)
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_created", lambda path: os.fdopen(os.open("/dev/full", os.O_RDWR), "w+b"))
            with pytest.raises(StorageError, match="No space left on device"):
                write_part(session, 1)
    assert scan(tmp_path, [0, 1]) == [1]
    assert_complete_and_equal_to_an_uninterrupted_run(tmp_path, [0, 1])


def test_full_disk_while_completing_keeps_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tmp_path)
    with open_session(tmp_path) as session, monkeypatch.context() as patch:
        full_disk(patch, "replace")
        with pytest.raises(StorageError, match=r"results\.parquet"):
            session.complete(MANIFEST)
    assert scan(tmp_path, [0, 1, 2, 5]) == []
    assert_complete_and_equal_to_an_uninterrupted_run(tmp_path, [0, 1, 2, 5])


def test_writer_that_failed_refuses_to_go_on(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        with pytest.MonkeyPatch.context() as monkeypatch:
            full_disk(monkeypatch, "fsync")
            with pytest.raises(StorageError):
                write_part(session, 0)
        with pytest.raises(StorageError, match="run the same command again"):
            write_part(session, 1)
        with pytest.raises(StorageError, match="run the same command again"):
            session.complete(MANIFEST)


def test_window_is_never_stored_twice(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        write_part(session, 0)
        with pytest.raises(RunError, match="measured twice"):
            write_part(session, 1, 0)
        with pytest.raises(RunError, match="measured twice"):
            write_part(session, 2, 2)
        session.flush()
        assert session.finished_ids() == {window_id(index) for index in (0, 1, 2)}


def test_row_with_missing_or_unknown_columns_is_our_own_bug(tmp_path: Path) -> None:
    row = result_row(0)
    for odd, name in (({key: row[key] for key in row if key != "verdict"}, "verdict"), (row | {"odd": 1}, "odd")):
        with pytest.raises(AssertionError, match=name), open_session(tmp_path) as session:
            session.add(odd)


@pytest.mark.parametrize("order", [[0], [0, 1, 2], [0, 2]])
def test_run_is_complete_only_with_exactly_the_windows_asked_for(tmp_path: Path, order: list[int]) -> None:
    with open_session(tmp_path) as session:
        write_part(session, 0, 1)
        with pytest.raises(RunError, match=f"{len(order)} windows were asked for, 2 are stored"):
            session.complete(MANIFEST, order=[window_id(index) for index in order])
        assert not session.is_complete
        session.complete(MANIFEST)
        assert session.is_complete


def test_run_without_windows_or_continuations_completes(tmp_path: Path) -> None:
    with RunSession.open(tmp_path, kind="scan", identity=IDENTITY, schema=SCHEMA) as session:
        session.complete(MANIFEST)
    run = read_run(tmp_path)
    assert run.results.columns == [column.name for column in SCHEMA]
    assert len(run.results) == 0
    assert run.continuations is None


def test_run_with_other_columns_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path)
    with pytest.raises(RunError, match="greedy_hamming"):
        RunSession.open(
            tmp_path,
            kind="scan",
            identity=IDENTITY,
            schema=(*SCHEMA, Column("greedy_hamming", "int32")),
            continuations=CONTINUATIONS,
        )
