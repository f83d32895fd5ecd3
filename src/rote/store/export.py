"""Results for other tools: CSV and JSON Lines, a batch of rows at a time, complete or not there at all.

Numbers are written with all their digits. A log-probability can be −inf, which neither format has:
- JSON Lines: the strings "NaN", "Infinity" and "-Infinity" (Python's float() and JavaScript's Number() read them);
  null means absent and nothing else.
- CSV: NaN, inf and -inf as polars, pandas and R read them; an empty field means absent. Lists are JSON.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import ConfigError, RunError
from rote.store.atomic import atomic_file, plain_json
from rote.store.read import StoredRun, read_run
from rote.types import ExportFormat, ExportTable

ROWS_PER_BATCH = 4096


class Exported(NamedTuple):
    """What was written. `is_complete` is False when the run was still in parts."""

    path: Path
    rows: int
    is_complete: bool


def export_run(
    path: str | Path, *, format: ExportFormat, out: Path | None = None, table: ExportTable = "results"
) -> Exported:
    """Write a table of the run at `path` to `out` (by default `<table>.<format>` inside the run)."""
    if format not in ("csv", "jsonl"):
        raise ConfigError(f"Unknown export format {format!r}; choose csv or jsonl.")
    run = read_run(path)
    target = run.path / f"{table}.{format}" if out is None else out
    if target.is_dir():
        raise RunError(f"{target} is a folder; give the name of a file to export to.")
    files = _files(run, table)
    rows = 0
    with atomic_file(target) as file:
        if format == "csv":
            file.write(_csv_lines([pq.read_schema(files[0]).names]))
        for batch in _batches(files):
            lines = _csv_lines([row.values() for row in batch]) if format == "csv" else _json_lines(batch)
            file.write(lines)
            rows += len(batch)
    return Exported(target, rows, run.is_complete)


def _files(run: StoredRun, table: ExportTable) -> tuple[Path, ...]:
    if table == "results":
        return run.result_files
    if run.continuation_files is None:
        raise RunError(f"{run.path} keeps no continuations; scan with --measures near and --keep N to have them.")
    return run.continuation_files


def _batches(files: tuple[Path, ...]) -> Iterator[list[dict[str, Any]]]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=ROWS_PER_BATCH):
                    yield batch.to_pylist()
        except FileNotFoundError as error:
            raise RunError("The run was completed while it was read; export it again.") from error
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{path} cannot be read: {error}.") from error


def _csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_csv_value(value) for value in row] for row in rows)
    return buffer.getvalue().encode()


def _csv_value(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(plain_json(value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return value


def _json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    lines = (json.dumps(plain_json(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    return "".join(lines).encode()
