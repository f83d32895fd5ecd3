"""Every file of a run is bound to it: a changed byte, a missing file and a file of another run are refused by name."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_samples import IDENTITY, MANIFEST, add, open_session, scan, window_id

from byrote.corpus.read import Document
from byrote.errors import DamageError, RunError
from byrote.store.export import export_run
from byrote.store.journal import AnswerFile
from byrote.store.manifest import read_identity, read_manifest, write_manifest
from byrote.store.read import list_runs, read_run, verify_run
from byrote.types import Split

FURTHER = ("texts.parquet", "answers.jsonl")
COMPLETE = ("identity.json", "manifest.json", "results.parquet", "continuations.parquet", *FURTHER)
UNFINISHED = (
    "identity.json",
    "parts.json",
    *FURTHER,
    *(f"parts/{table}-{number:06d}.parquet" for table in ("part", "continuations") for number in range(3)),
)


def make_run(path: Path, *, is_complete: bool, first: int = 0) -> Path:
    """Two parts of two windows; runs of equal identity differ in nothing but their run id and their rows."""
    with open_session(path, part_rows=2) as session:
        session.write_texts([Document.from_text("a.txt", f"text {first}", split=Split.TARGET)])
        answers = AnswerFile.open(session.answers, session.run_id)
        answers.keep({"a": b"an answer"})
        answers.close()
        session.bind(session.answers)
        add(session, *range(first, first + 4))
        if is_complete:
            session.complete(MANIFEST)
    return path


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "complete", is_complete=True)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "unfinished", is_complete=False)


@pytest.mark.parametrize("is_complete", [True, False])
def test_what_was_checked_is_listed(tmp_path: Path, is_complete: bool) -> None:
    verified = verify_run(make_run(tmp_path / "run", is_complete=is_complete))
    names = COMPLETE if is_complete else UNFINISHED
    assert sorted(line.split(": ")[0] for line in verified.checked) == sorted(names)
    assert (verified.manifest is not None) == is_complete


@given(data=st.data(), is_complete=st.booleans(), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_every_flipped_bit_is_refused_by_the_name_of_its_file(
    complete: Path, unfinished: Path, data: st.DataObject, is_complete: bool, bit: int
) -> None:
    run, names = (complete, COMPLETE) if is_complete else (unfinished, UNFINISHED)
    victim = run / data.draw(st.sampled_from(names))
    content = victim.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    try:
        victim.write_bytes(changed)
        for read in (verify_run, read_run):
            with pytest.raises(RunError, match=victim.name):
                read(run)
    finally:
        victim.write_bytes(content)
    verify_run(run)


@given(data=st.data(), is_complete=st.booleans())
@settings(max_examples=50, deadline=None)
def test_every_file_that_is_cut_or_lengthened_is_refused(
    complete: Path, unfinished: Path, data: st.DataObject, is_complete: bool
) -> None:
    run, names = (complete, COMPLETE) if is_complete else (unfinished, UNFINISHED)
    # The answers of an unfinished run grow line by line: a file that is shorter is what it was before.
    fixed = [name for name in names if is_complete or name != "answers.jsonl"]
    victim = run / data.draw(st.sampled_from(fixed))
    content = victim.read_bytes()
    size = data.draw(st.integers(0, len(content) + 20).filter(lambda size: size != len(content)))
    try:
        os.truncate(victim, size)
        with pytest.raises(RunError, match=victim.name):
            verify_run(run)
    finally:
        victim.write_bytes(content)


@pytest.mark.parametrize("name", [name for name in COMPLETE if name != "manifest.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run", is_complete=True)
    (run / name).unlink()
    with pytest.raises(RunError, match=name):
        read_run(run)


@pytest.mark.parametrize("name", [name for name in UNFINISHED if name.startswith("parts")])
def test_a_part_that_is_missing_is_named_and_measured_again(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run", is_complete=False)
    (run / name).unlink()
    for read in (verify_run, read_run):
        with pytest.raises(DamageError, match=f"{Path(name).name} .*missing"):
            read(run)
    if name == "parts.json":
        open_session(run).close()
        assert read_run(run).results.height == 4
        return
    dropped = Path(name).name.replace("continuations", "part")
    with pytest.warns(UserWarning, match=f"{dropped} was damaged or is missing"):
        open_session(run).close()
    assert read_run(run).results.height == (4 if "000000" in name else 2)


def test_a_list_of_parts_that_is_missing_is_noticed_before_the_first_part(tmp_path: Path) -> None:
    open_session(tmp_path / "run").close()
    assert read_run(tmp_path / "run").results.is_empty()
    (tmp_path / "run" / "parts.json").unlink()
    with pytest.raises(DamageError, match=r"parts\.json .*missing"):
        verify_run(tmp_path / "run")


@pytest.mark.parametrize("pattern", ["*", "part-*", "continuations-*", "*-000002.parquet"])
def test_many_parts_that_are_missing_are_noticed(tmp_path: Path, pattern: str) -> None:
    run = make_run(tmp_path / "run", is_complete=False)
    for path in (run / "parts").glob(pattern):
        path.unlink()
    with pytest.raises(DamageError, match=r"parts/.*missing"):
        verify_run(run)
    with pytest.warns(UserWarning, match="is missing; its windows are measured again"):
        open_session(run).close()
    assert read_run(run).results.height == (2 if "2" in pattern else 0)


def test_a_finished_run_without_its_manifest_is_told_from_an_unfinished_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", is_complete=True)
    (run / "manifest.json").unlink()
    before = {path: path.read_bytes() for path in run.iterdir()}
    for read in (verify_run, read_run, open_session):
        with pytest.raises(RunError, match=r"its manifest\.json is missing"):
            read(run)  # type: ignore[operator]
    (listed,) = list_runs(tmp_path)
    assert (listed.state, "manifest.json is missing" in str(listed.reason)) == ("unreadable", True)
    assert before == {path: path.read_bytes() for path in run.iterdir()}
    with open_session(run, fresh=True) as session:
        assert session.finished_ids() == set()


@pytest.mark.parametrize("kind", [pa.float64(), pa.string()])
@pytest.mark.parametrize("column", ["token_evals", "char_start"])
def test_a_column_of_another_type_is_refused_by_every_reader(tmp_path: Path, column: str, kind: pa.DataType) -> None:
    """Hashes show change, not authorship: somebody may write tables and a manifest of his own."""
    run = make_run(tmp_path / "run", is_complete=True)
    table = pq.read_table(run / "results.parquet")
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, table.column(column).cast(kind)), run / "results.parquet")
    manifest = read_manifest(run / "manifest.json")
    assert manifest is not None
    files = [run / name for name in manifest.pop("files")]
    identity = read_identity(run / "identity.json")
    assert identity is not None
    write_manifest(run / "manifest.json", manifest, identity, files)
    for read in (read_run, lambda path: export_run(path, format="csv")):
        with pytest.raises(RunError, match=f"its column {column} holds {kind}, not int64"):
            read(run)


@pytest.mark.parametrize("name", COMPLETE)
def test_a_file_of_another_complete_run_is_refused(tmp_path: Path, name: str) -> None:
    run, other = (make_run(tmp_path / path, is_complete=True, first=first) for path, first in (("a", 0), ("b", 9)))
    shutil.copy(other / name, run / name)
    for read in (read_run, open_session):
        with pytest.raises(RunError, match=name.replace(".", r"\.")):
            read(run)  # type: ignore[operator]
    with pytest.raises(RunError, match=name.replace(".", r"\.")):
        export_run(run, format="csv")


@pytest.mark.parametrize("name", UNFINISHED[1:])
@pytest.mark.parametrize("read", [read_run, open_session])
def test_a_file_of_another_unfinished_run_is_refused_and_left_there(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    """Runs of the same identity, that is: only the run id tells them apart."""
    if name in ("texts.parquet", "answers.jsonl") and read is open_session:
        pytest.skip("a session reads texts and answers when it writes them")
    run, other = (make_run(tmp_path / path, is_complete=False, first=first) for path, first in (("a", 0), ("b", 9)))
    shutil.copy(other / name, run / name)
    with pytest.raises(RunError, match=r"not of this run|belongs to another run"):
        read(run)
    assert (run / name).read_bytes() == (other / name).read_bytes()


def test_texts_of_another_run_are_refused_when_a_session_writes_its_own(tmp_path: Path) -> None:
    run, other = (make_run(tmp_path / path, is_complete=False, first=first) for path, first in (("a", 0), ("b", 9)))
    shutil.copy(other / "texts.parquet", run / "texts.parquet")
    with open_session(run) as session, pytest.raises(RunError, match="not of this run"):
        session.write_texts([])


def test_a_part_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", is_complete=False)
    shutil.copy(run / "parts" / "part-000001.parquet", run / "parts" / "part-000002.parquet")
    with pytest.raises(RunError, match="it says part-000001"):
        read_run(run)


def test_a_table_that_the_manifest_does_not_list_is_refused(tmp_path: Path) -> None:
    scan(tmp_path / "run", [0, 1])
    shutil.copy(make_run(tmp_path / "other", is_complete=True) / "texts.parquet", tmp_path / "run" / "texts.parquet")
    with pytest.raises(RunError, match=r"texts\.parquet does not belong to this run"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("content", ["", "{}", "{"])
def test_an_empty_or_cut_manifest_does_not_complete_a_run(tmp_path: Path, content: str) -> None:
    """Neither for readers nor for a command that would say "was complete already"."""
    run = make_run(tmp_path / "run", is_complete=False)
    (run / "manifest.json").write_text(content)
    for use in (read_run, open_session):
        with pytest.raises(DamageError, match=r"manifest\.json"):
            use(run)  # type: ignore[operator]
    with open_session(run, fresh=True) as session:
        assert not session.is_complete


def test_a_run_of_an_earlier_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"byrote_run": 1, "identity": {}}')
    with pytest.raises(
        RunError, match=r"another run format \(1, here 2; see identity\.json\); read it with that byrote"
    ):
        read_run(tmp_path)


def test_a_resumed_run_is_one_run(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        add(session, 0)
        first = session.run_id
    with open_session(tmp_path) as session:
        assert session.run_id == first
        add(session, 1)
        session.complete(MANIFEST)
    run = read_run(tmp_path)
    assert (run.run_id, run.kind, run.identity) == (first, "scan", IDENTITY)
    assert run.results["window_id"].to_list() == [window_id(0), window_id(1)]
