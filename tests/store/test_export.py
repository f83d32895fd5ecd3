"""Exports read back by independent readers give the stored values, −inf and absent ones included."""

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from run_samples import IDENTITY, MANIFEST, SCHEMA, continuations_of, open_session, result_row, scan, write_part

from rote.errors import ConfigError, RunError, StorageError
from rote.store.export import export_run
from rote.store.session import RunSession

INDICES = [3, 0, 4]


def refuse_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def strict_json(line: str) -> Any:
    return json.loads(line, parse_constant=refuse_constant)


def restored(value: Any) -> Any:
    if isinstance(value, list):
        return [restored(entry) for entry in value]
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def test_json_lines_are_valid_json_and_lossless(tmp_path: Path) -> None:
    scan(tmp_path, INDICES)
    exported = export_run(tmp_path, format="jsonl")
    assert exported == (tmp_path / "results.jsonl", 3, True)
    rows = [strict_json(line) for line in exported.path.read_text(encoding="utf-8").splitlines()]
    assert rows[0]["log_p_verbatim"] == "-Infinity"
    assert rows[1]["verdict"] is None
    assert [{name: restored(value) for name, value in row.items()} for row in rows] == [
        result_row(index) for index in INDICES
    ]


def test_csv_is_lossless_with_lists_as_json(tmp_path: Path) -> None:
    scan(tmp_path, INDICES)
    out = tmp_path / "elsewhere" / "table.csv"
    out.parent.mkdir()
    export_run(tmp_path, format="csv", out=out)
    rows = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"), newline="")))
    for row, index in zip(rows, INDICES, strict=True):
        expected = result_row(index)
        assert list(row) == list(expected)
        assert float(row["log_p_verbatim"]) == expected["log_p_verbatim"]
        assert json.loads(row["mass_lower"]) == expected["mass_lower"]
        assert row["verdict"] == (expected["verdict"] or "")
        assert row["window_id"] == expected["window_id"]
    frame = pl.read_csv(out)
    assert frame["log_p_verbatim"].to_list()[0] == -math.inf
    assert frame["p_verbatim"].to_list() == [result_row(index)["p_verbatim"] for index in INDICES]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_continuations_can_be_exported_with_odd_text(tmp_path: Path, format: str) -> None:
    scan(tmp_path, [2, 5])
    exported = export_run(tmp_path, format=format, table="continuations")  # type: ignore[arg-type]
    content = exported.path.read_bytes().decode()
    if format == "jsonl":
        assert [strict_json(line) for line in content.split("\n")[:-1]] == continuations_of([2, 5])
    else:
        rows = list(csv.DictReader(io.StringIO(content, newline="")))
        assert [row["text"] for row in rows] == [row["text"] for row in continuations_of([2, 5])]
    assert exported.rows == 4


def test_unfinished_run_exports_what_is_finished(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        write_part(session, 0)
        exported = export_run(tmp_path, format="jsonl")
        assert exported.rows == 1
        assert not exported.is_complete
        assert export_run(tmp_path, format="csv", table="continuations").rows == 0


def test_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan(tmp_path, INDICES)
    out = tmp_path / "out.csv"
    out.write_text("old")

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match="No space left"):
            export_run(tmp_path, format="csv", out=out)
    assert out.read_text() == "old"
    assert not list(tmp_path.glob(".*.rote-tmp"))


def test_impossible_exports_are_one_sentence(tmp_path: Path) -> None:
    scan(tmp_path / "run", INDICES)
    with pytest.raises(ConfigError, match="xlsx"):
        export_run(tmp_path / "run", format="xlsx")  # type: ignore[arg-type]
    with pytest.raises(RunError, match="is a folder"):
        export_run(tmp_path / "run", format="csv", out=tmp_path)
    with pytest.raises(StorageError, match="absent"):
        export_run(tmp_path / "run", format="csv", out=tmp_path / "absent" / "a.csv")
    (tmp_path / "run" / "results.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match="is damaged or was changed"):
        export_run(tmp_path / "run", format="jsonl")


def test_run_without_continuations_says_so(tmp_path: Path) -> None:
    with RunSession.open(tmp_path, kind="scan", identity=IDENTITY, schema=SCHEMA) as session:
        session.add(result_row(0))
        session.complete(MANIFEST)
    with pytest.raises(RunError, match="keeps no continuations"):
        export_run(tmp_path, format="csv", table="continuations")
