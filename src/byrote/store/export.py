"""Results for other tools: CSV and JSON Lines, a batch of rows at a time, complete or not there at all.

What is written reads back exactly: numbers have all their digits, texts every character.
- Not in JSON or CSV: NaN and infinities. JSON Lines have the strings "NaN", "Infinity" and "-Infinity" (Python's
  float() and JavaScript's Number() read them), CSV has NaN, inf and -inf (as polars, pandas and R read them).
- Absent is null in JSON Lines and an empty field in CSV; an empty text is a pair of quotes. CSV keeps lists as JSON.
- Texts in CSV are always quoted, so that lone carriage returns stay inside. A text that a spreadsheet would take for a
  formula gets an apostrophe in front, and so does one that begins with an apostrophe: to read, take off the first one.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from byrote.errors import ConfigError, RunError
from byrote.store.files import atomic_file, note_written, plain_json
from byrote.store.read import read_run
from byrote.store.tables import open_parquet, row_batches
from byrote.types import ExportFormat, ExportTable

ROWS_PER_BATCH = 4096
STARTS_OF_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n", "'")
"""What spreadsheets begin a formula with, or pass over before they look for one; and the mark itself."""
OTHER_LINE_ENDS = ("\x85", "\u2028", "\u2029")


class Exported(NamedTuple):
    """What was written. `is_complete` is False when the run was still in parts."""

    path: Path
    rows: int
    is_complete: bool


def export_run(
    path: str | Path,
    *,
    format: ExportFormat,
    out: Path | None = None,
    table: ExportTable = "results",
    inert: bool = True,
) -> Exported:
    """Write a table of the run at `path` to `out` (by default `<table>.<format>` inside the run).

    With `inert`, no text in a CSV file is a formula to a spreadsheet.
    """
    if format not in ("csv", "jsonl"):
        raise ConfigError(f"Unknown export format {format!r}; choose csv or jsonl.")
    run = read_run(path)
    target = run.path / f"{table}.{format}" if out is None else out
    if target.is_dir():
        raise RunError(f"{target} is a folder; give the name of a file to export to.")
    files = run.result_files if table == "results" else run.continuation_files
    if files is None:
        raise RunError(f"{run.path} keeps no continuations; scan with --measures near and --keep N to have them.")
    rows = 0
    with atomic_file(target) as file:
        if format == "csv":
            with open_parquet(files[0]) as first:
                file.write((",".join(first.schema_arrow.names) + "\n").encode())
        for batch in _batches(files):
            for row in batch:
                values = (_csv_value(value, inert=inert) for value in row.values())
                line = _json_line(row) if format == "jsonl" else ",".join(values)
                file.write(f"{line}\n".encode())
            rows += len(batch)
    if out is None:
        note_written(run.path, [target])
    return Exported(target, rows, run.is_complete)


def _batches(files: tuple[Path, ...]) -> Iterator[list[dict[str, Any]]]:
    for path in files:
        try:
            yield from row_batches(path, rows_per_batch=ROWS_PER_BATCH)
        except FileNotFoundError as error:
            raise RunError("The run was completed while it was read; export it again.") from error
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{path} cannot be read: {error}.") from error


def inert_text(text: str) -> str:
    """The text with an apostrophe before it where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(STARTS_OF_FORMULAS) else text


def _csv_value(value: Any, *, inert: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, int):
        return str(value)
    text = json.dumps(plain_json(value), ensure_ascii=False) if isinstance(value, list) else value
    text = inert_text(text) if inert else text
    return '"' + text.replace('"', '""') + '"'


def _json_line(row: Mapping[str, Any]) -> str:
    line = json.dumps(plain_json(row), ensure_ascii=False, allow_nan=False)
    # Inside strings only. Readers that split at every kind of line end would break the line there.
    for separator in OTHER_LINE_ENDS:
        line = line.replace(separator, f"\\u{ord(separator):04x}")
    return line
