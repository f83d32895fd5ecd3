"""Reading: complete and unfinished runs, schemas, manifests, and folders that are no runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run_samples import IDENTITY, MANIFEST, SCHEMA, continuations_of, open_session, scan, window_id, write_part

from byrote.errors import DamageError, RunError
from byrote.store.manifest import RunIdentity, read_manifest, versions, write_identity, write_manifest
from byrote.store.read import read_run


def test_unfinished_run_is_readable_and_left_as_it_is(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        write_part(session, 2, 0)
        write_part(session, 1)
    # Another process is in the middle of writing a part: its continuations come first.
    parts = tmp_path / "parts"
    shutil.copy(parts / "continuations-000002.parquet", parts / "continuations-000003.parquet")
    before = sorted(os.listdir(parts))
    run = read_run(tmp_path)
    assert not run.is_complete
    assert run.manifest is None
    assert run.identity == IDENTITY
    assert run.results["window_id"].to_list() == [window_id(2), window_id(0), window_id(1)]
    assert run.continuations is not None
    assert run.continuations.to_dicts() == continuations_of([2, 0, 1])
    assert sorted(os.listdir(tmp_path / "parts")) == before


def test_run_with_nothing_finished_reads_as_empty_with_its_columns(tmp_path: Path) -> None:
    with open_session(tmp_path):
        pass
    run = read_run(tmp_path)
    assert run.results.columns == [column.name for column in SCHEMA]
    assert len(run.results) == 0


@pytest.mark.parametrize("name", ["a [b] *.run", "ünï 漢字", "with space", "two\nlines", "-x", "~"])
def test_odd_folder_names_work(tmp_path: Path, name: str) -> None:
    scan(tmp_path / name, [0, 1])
    assert len(read_run(tmp_path / name).results) == 2


def test_lazy_frames_need_not_read_everything(tmp_path: Path) -> None:
    scan(tmp_path, [0, 1, 2])
    frame = read_run(tmp_path).scan_results().select("token_evals").collect()
    assert frame["token_evals"].to_list() == [100, 101, 102]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no byrote run"):
        read_run(tmp_path)
    with pytest.raises(RunError, match="is not a folder"):
        read_run(tmp_path / "absent")


def test_run_that_died_before_its_first_part_holds_no_results_yet(tmp_path: Path) -> None:
    write_identity(tmp_path / "identity.json", RunIdentity.new("scan", IDENTITY, {}))
    with pytest.raises(RunError, match=r"no results yet \(scan, unfinished\)"):
        read_run(tmp_path)


def test_manifest_comes_back_with_versions_and_marked_infinities(tmp_path: Path) -> None:
    sections = {
        "screen": {"missed": 0},
        "config": {"top_k": 40, "top_p": None},
        "command_line": ["byrote", "scan", "--text", "b\udce9.txt"],
        "totals": {"windows": 3, "rate": float("nan"), "queries": float("inf")},
    }
    write_manifest(tmp_path / "manifest.json", sections, RunIdentity("scan", "ab", {}), [])
    stored = read_manifest(tmp_path / "manifest.json")
    assert stored is not None
    assert list(stored) == [
        *("byrote_run", "kind", "run_id", "written_at", "command_line", "config", "seed", "model", "texts", "device"),
        *("versions", "timings", "totals", "screen", "files"),
    ]
    assert stored["totals"] == {"windows": 3, "rate": "NaN", "queries": "Infinity"}
    assert stored["config"] == {"top_k": 40, "top_p": None}
    assert stored["versions"] == versions()
    assert stored["screen"] == {"missed": 0}
    assert stored["texts"] == {}


def test_missing_manifest_is_absent_and_a_damaged_one_an_error(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "manifest.json") is None
    for content in ("", "{", "[]", '{"totals": {}}'):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(DamageError, match=r"manifest\.json"):
            read_manifest(tmp_path / "manifest.json")


def test_complete_run_gives_back_its_manifest(tmp_path: Path) -> None:
    scan(tmp_path, [0])
    manifest = read_run(tmp_path).manifest
    assert manifest is not None
    assert MANIFEST.items() <= manifest.items()
    assert list(manifest["files"]) == ["identity.json", "results.parquet", "continuations.parquet"]


def test_store_and_versions_work_without_importing_torch() -> None:
    code = (
        "import sys, byrote.store.resume, byrote.store.export; from byrote.store.manifest import versions;"
        "assert versions()['torch']; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
