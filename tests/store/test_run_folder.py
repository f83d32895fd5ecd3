"""Who may write where: identities, foreign folders, locks, and what --fresh removes."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_samples import IDENTITY, MANIFEST, open_session, scan, window_id, write_part

from byrote.errors import RunError, StorageError
from byrote.store.export import export_run
from byrote.store.journal import AnswerFile
from byrote.store.manifest import differences
from byrote.store.read import list_runs, read_run
from byrote.store.resume import acquire_lock


def changed(**config: Any) -> dict[str, Any]:
    return {**IDENTITY, "config": {**IDENTITY["config"], **config}}  # type: ignore[dict-item]


def test_run_of_another_configuration_is_refused_with_the_difference(tmp_path: Path) -> None:
    scan(tmp_path, [0, 1])
    other = {"config": {"top_k": 20, "measures": ("verbatim", "near")}, "texts": {"b.txt": "12ab"}}
    with pytest.raises(RunError) as caught:
        open_session(tmp_path, identity=other)
    assert str(caught.value) == (
        f"{tmp_path} holds a run made with something else: config.top_k: 40 in the run, 20 now; "
        'texts.a.txt: "12ab" in the run, absent now; texts.b.txt: absent in the run, "12ab" now. '
        "Choose another folder with --out, or start over with --fresh."
    )
    with pytest.raises(RunError, match=r"config\.top_k: 40 in the run, none now"):
        open_session(tmp_path, identity=changed(top_k=None))
    assert len(read_run(tmp_path).results) == 2


def test_many_differences_are_cut_short_but_counted(tmp_path: Path) -> None:
    with open_session(tmp_path):
        pass
    with pytest.raises(RunError, match="and 12 more"):
        open_session(tmp_path, identity=changed(**{f"option_{number}": 1 for number in range(20)}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4))
@settings(deadline=None)
def test_identity_differs_from_itself_in_nothing(identity: dict[str, Any]) -> None:
    assert list(differences(identity, identity)) == []


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3), st.text(max_size=3), json_values)
@settings(deadline=None)
def test_any_changed_entry_is_named(identity: dict[str, Any], key: str, value: Any) -> None:
    other = {**identity, key: [value, "changed"]}
    if other != identity:
        assert any(line.startswith(key) for line in differences(identity, other))


def test_identity_is_the_same_after_storing_tuples_and_infinities(tmp_path: Path) -> None:
    identity = changed(sizes=(1, 2), bound=float("inf"), nothing={})
    open_session(tmp_path, identity=identity).close()
    open_session(tmp_path, identity=identity).close()


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("thesis.tex", "x", "holds no byrote run"),
        ("identity.json", "{}", "holds no byrote run"),
        ("identity.json", "{", r"identity\.json is damaged or was changed"),
        ("manifest.json", "{}", "holds no byrote run"),
    ],
)
def test_foreign_folder_is_refused_and_left_alone(
    tmp_path: Path, fresh: bool, name: str, content: str, sentence: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=sentence):
        open_session(tmp_path, fresh=fresh)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == content


def test_run_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"byrote_run": 99, "identity": {}}')
    with pytest.raises(RunError, match="another run format"):
        open_session(tmp_path, fresh=True)


def test_fresh_removes_what_byrote_wrote_and_nothing_else(tmp_path: Path) -> None:
    scan(tmp_path, [0, 1, 2])
    for name in ("report/index.html", "report/figures/a.svg", "report/notes.md", "results.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with open_session(tmp_path, fresh=True, identity=changed(top_k=1)) as session:
        assert session.finished_ids() == set()
        assert not session.is_complete
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == [
        ".lock",
        "identity.json",
        "notes.txt",
        "parts.json",
        "parts/continuations-000000.parquet",
        "parts/part-000000.parquet",
        "report/notes.md",
    ]
    assert read_run(tmp_path).identity == changed(top_k=1)


LINKED = [
    ".lock",
    "identity.json",
    "parts",
    "parts.json",
    "results.csv",
    "report",
    "report/index.html",
    "blocks",
    "x/y",
]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", LINKED)
def test_a_link_inside_a_run_folder_is_refused_and_leads_nowhere(tmp_path: Path, name: str, fresh: bool) -> None:
    """Of a folder that came from somebody else: what is behind a link stays as it is."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    open_session(run).close()
    place = run / name
    place.parent.mkdir(exist_ok=True)
    place.rename(outside) if place.exists() else outside.write_text("mine")
    place.symlink_to(outside)
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    with pytest.raises(StorageError, match=f"{name} is a link"):
        open_session(run, fresh=fresh)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_folders_of_a_run_are_their_owners_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with open_session(tmp_path / "unfinished") as session:
            write_part(session, 0)
            session.write_block("block", [], ())
            AnswerFile.open(session.answers, session.run_id).close()
        scan(tmp_path / "complete", [0, 1])
    finally:
        os.umask(before)
    for run in (tmp_path / "unfinished", tmp_path / "complete"):
        for path in (run, *run.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_answers_that_others_could_read_are_the_owners_alone_when_they_are_opened(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").touch()
    (tmp_path / "answers.jsonl").chmod(0o666)
    AnswerFile.open(tmp_path / "answers.jsonl", "run").close()
    assert stat.S_IMODE((tmp_path / "answers.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["runs:2", "file:run", "s3:bucket", "http:x/y", "a:b:c"])
def test_a_path_with_a_colon_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert scan(Path(name), [1, 0]) == [0, 1]
    run = read_run(name)
    assert run.results["window_id"].to_list() == [window_id(1), window_id(0)]
    assert run.continuations is not None
    assert export_run(name, format="csv").rows == 2
    assert [(one.name, one.rows) for one in list_runs(tmp_path)] == [(name, 2)]


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="choose another with --out"):
            open_session(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="Permission denied"):
        open_session(tmp_path)
    with pytest.raises(RunError, match="Permission denied"):
        open_session(tmp_path / "run")


def test_folder_that_refuses_the_lock_file_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(RunError, match=f"Cannot write into {tmp_path}: Permission denied"):
            open_session(tmp_path)


def test_second_writer_in_one_process_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with open_session(tmp_path), pytest.raises(RunError, match=f"in use by process {os.getpid()} on "):
        open_session(tmp_path)
    open_session(tmp_path).close()


def test_failed_opening_releases_the_lock(tmp_path: Path) -> None:
    open_session(tmp_path).close()
    with pytest.raises(RunError, match="something else"):
        open_session(tmp_path, identity=changed(top_k=1))
    open_session(tmp_path).close()


def test_lock_file_with_nonsense_in_it_still_locks(tmp_path: Path) -> None:
    lock = acquire_lock(tmp_path / ".lock")
    (tmp_path / ".lock").write_text("nonsense")
    with pytest.raises(RunError, match="in use by another process"):
        acquire_lock(tmp_path / ".lock")
    os.close(lock)


WRITER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from run_samples import open_session, write_part
with open_session(Path(sys.argv[1])) as session:
    write_part(session, 0)
    print("written", flush=True)
    sys.stdin.read()
"""


def test_second_process_is_refused_and_a_killed_one_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER_PROCESS, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
            with pytest.raises(RunError, match=f"in use by process {process.pid} on "):
                open_session(tmp_path)
            with pytest.raises(RunError, match="in use"):
                open_session(tmp_path, fresh=True)
            assert read_run(tmp_path).results["window_id"].to_list() == [window_id(0)]
        finally:
            process.send_signal(signal.SIGKILL)
    with open_session(tmp_path) as session:
        assert session.finished_ids() == {window_id(0)}
        write_part(session, 1)
        session.complete(MANIFEST)
    assert read_run(tmp_path).results["window_id"].to_list() == [window_id(0), window_id(1)]
