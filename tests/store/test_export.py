"""Exports read back by independent readers give the stored values, −inf and absent ones included."""

import csv
import io
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as pa_csv
from run_samples import IDENTITY, MANIFEST, SCHEMA, continuations_of, open_session, result_row, scan, write_part

from byrote.errors import ConfigError, RunError, StorageError
from byrote.store.columns import Column, Schema
from byrote.store.export import export_run
from byrote.store.resume import RunSession

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
    assert not list(tmp_path.glob(".*.byrote-tmp"))


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


TABLE: Schema = (
    Column("window_id", "text", is_required=True),
    Column("text", "text"),
    Column("number", "float64"),
    Column("whole", "int64"),
    Column("flag", "bool"),
    Column("masses", "list[float64]"),
    Column("words", "list[text]"),
)
PIECES = [*"=+-@'\"\r\n\t,;|\\ \x00\x85\u2028\ufeff", "NaN", "null", "inf"]
AWKWARD = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.none() | AWKWARD,
            "number": st.none() | st.floats(),
            "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
            "flag": st.none() | st.booleans(),
            "masses": st.none() | st.lists(st.floats(), max_size=3),
            "words": st.none() | st.lists(AWKWARD, max_size=3),
        }
    ),
    min_size=1,
    max_size=20,
)


def same(left: Any, right: Any) -> bool:
    """Equal, with every NaN equal to every other."""
    return repr(left) == repr(right) or left == right


def exported(folder: Path, rows: list[dict[str, Any]], format: str, *, inert: bool = True) -> Path:
    with RunSession.open(folder / "run", kind="scan", identity=IDENTITY, schema=TABLE) as session:
        for index, row in enumerate(rows):
            session.add({"window_id": f"={index}", **row})
        session.complete(MANIFEST)
    return export_run(folder / "run", format=format, out=folder / f"out.{format}", inert=inert).path  # type: ignore[arg-type]


def by_csv_module(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    kinds = {"number": float, "whole": int, "flag": lambda value: value == "true"}
    return [{name: kinds.get(name, str)(value) if value else None for name, value in row.items()} for row in rows]


def by_pyarrow(path: Path) -> list[dict[str, Any]]:
    kinds = {"number": pa.float64(), "whole": pa.int64(), "flag": pa.bool_()}
    table = pa_csv.read_csv(
        path,
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types={column.name: kinds.get(column.name, pa.string()) for column in TABLE},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def by_polars(path: Path) -> list[dict[str, Any]]:
    kinds = {"number": pl.Float64, "whole": pl.Int64, "flag": pl.Boolean}
    frame = pl.read_csv(path, schema={column.name: kinds.get(column.name, pl.String) for column in TABLE})
    return frame.to_dicts()


def without_mark(value: Any, *, inert: bool) -> Any:
    """Take off the apostrophe that keeps a text from being a formula."""
    return value[1:] if inert and isinstance(value, str) and value.startswith("'") else value


@pytest.mark.parametrize("read", [by_csv_module, by_pyarrow, by_polars])
@given(rows=ROWS, inert=st.booleans())
@settings(max_examples=40, deadline=None)
def test_csv_reads_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, read: Callable[[Path], list[dict[str, Any]]], rows: Any, inert: bool
) -> None:
    path = exported(tmp_path_factory.mktemp("csv"), rows, "csv", inert=inert)
    back = [{name: without_mark(value, inert=inert) for name, value in row.items()} for row in read(path)]
    for row, expected in zip(back, rows, strict=True):
        for name in ("masses", "words"):
            row[name] = None if row[name] is None else restored(strict_json(row[name]))
        for name, value in expected.items():
            # The csv module knows no difference between an empty text and an absent one.
            wanted = None if value == "" and read is by_csv_module else value
            assert same(row[name], restored(wanted) if isinstance(wanted, list) else wanted), name


@given(rows=ROWS)
@settings(max_examples=40, deadline=None)
def test_json_lines_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = exported(tmp_path_factory.mktemp("jsonl"), rows, "jsonl")
    lines = path.read_bytes().decode().splitlines()
    for line, expected in zip(lines, rows, strict=True):
        row = strict_json(line)
        for name, value in expected.items():
            back = restored(row[name]) if name in ("number", "masses") else row[name]
            assert same(back, value), name


FORMULAS = ["=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", '=HYPERLINK("x")', "＝1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_is_a_formula_unless_asked_for(tmp_path: Path, text: str) -> None:
    row: dict[str, Any] = dict.fromkeys(column.name for column in TABLE[1:]) | {"text": text}
    inert = by_csv_module(exported(tmp_path / "inert", [row], "csv"))
    assert inert[0]["text"] == f"'{text}"
    assert inert[0]["window_id"] == "'=0"
    kept = by_csv_module(exported(tmp_path / "kept", [row], "csv", inert=False))
    assert (kept[0]["text"], kept[0]["window_id"]) == (text, "=0")


def test_an_export_refuses_links_and_what_is_no_file(tmp_path: Path) -> None:
    """A run folder that came from somebody else may hold a link in the place of results.csv."""
    scan(tmp_path / "run", INDICES)
    (tmp_path / "mine").write_text("mine")
    for target in (tmp_path / "mine", tmp_path / "nothing"):
        (tmp_path / "run" / "results.csv").unlink(missing_ok=True)
        (tmp_path / "run" / "results.csv").symlink_to(target)
        with pytest.raises(StorageError, match=r"results\.csv is a link"):
            export_run(tmp_path / "run", format="csv")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()
    os.mkfifo(tmp_path / "pipe")
    for special in (tmp_path / "pipe", Path("/dev/null")):
        before = special.stat().st_mode
        with pytest.raises(StorageError, match="is a device, pipe or socket"):
            export_run(tmp_path / "run", format="csv", out=special)
        assert special.stat().st_mode == before


def test_an_export_is_its_owners_alone_whatever_it_replaces(tmp_path: Path) -> None:
    scan(tmp_path / "run", INDICES)
    out = tmp_path / "out.csv"
    out.touch()
    out.chmod(0o666)
    export_run(tmp_path / "run", format="csv", out=out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
