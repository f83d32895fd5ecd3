"""Results for other tools: CSV and JSON Lines, a batch of rows at a time, complete or not there at all.

What is written reads back exactly: numbers have all their digits, texts every character.
- Not in JSON or CSV: NaN and infinities. JSON Lines have the strings "NaN", "Infinity" and "-Infinity" (Python's
  float() and JavaScript's Number() read them), CSV has NaN, inf and -inf (as polars, pandas and R read them).
- Absent is null in JSON Lines and an empty field in CSV; an empty text is a pair of quotes. CSV keeps lists as JSON,
  but for those that have a column for every entry (`mass_lower_0` …).
- With texts, CSV has each window's passage in two more columns, as it stands in the document.
- Texts in CSV are always quoted, so that lone carriage returns stay inside. A text that a spreadsheet would take for a
  formula gets an apostrophe in front, and so does one that begins with an apostrophe: to read, take off the first one.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
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
    entries: Mapping[str, int] = MappingProxyType({}),
    with_texts: bool = False,
) -> Exported:
    """Write a table of the run at `path` to `out` (by default `<table>.<format>` inside the run).

    In CSV, with `inert` no text is a formula to a spreadsheet; `entries` are lists that get so many columns; and
    `with_texts` appends prefix and suffix of windows whose document the run keeps.
    """
    if format not in ("csv", "jsonl"):
        raise ConfigError(f"Unknown export format {format!r}; choose csv or jsonl.")
    run = read_run(path)
    target = run.path / f"{table}.{format}" if out is None else out
    if target.is_dir():
        raise RunError(f"{target} is a folder; give the name of a file to export to.")
    files = run.result_files if table == "results" else run.continuation_files
    if files is None:
        raise RunError(f"{run.path} keeps no continuations; scan with --measures near and keep above 0 to have them.")
    texts = None
    has_windows = table == "results" and "suffix_char_start" in run.scan_results().collect_schema()
    if format == "csv" and with_texts and has_windows and run.texts is not None:
        texts = {(split, name): text for split, name, text in run.texts.select("split", "name", "text").iter_rows()}
    rows = 0
    with atomic_file(target) as file:
        if format == "csv":
            with open_parquet(files[0]) as first:
                names = dict.fromkeys(first.schema_arrow.names)
            file.write((",".join(_flat(names, entries, texts)) + "\n").encode())
        for batch in _batches(files):
            for row in batch:
                values = (_csv_value(value, inert=inert) for value in _flat(row, entries, texts).values())
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


def _flat(row: Mapping[str, Any], entries: Mapping[str, int], texts: Mapping[Any, str] | None) -> dict[str, Any]:
    """A row as the columns of CSV; a row of Nones gives their names."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        listed = [None] * entries[name] if name in entries and value is None else value
        flat |= {f"{name}_{place}": entry for place, entry in enumerate(listed)} if name in entries else {name: value}
    if texts is not None:
        text = texts.get((str(row["split"]), row["document"]))
        start, middle, end = (row[place] for place in ("char_start", "suffix_char_start", "char_end"))
        flat["prefix_text"] = None if text is None else text[start:middle]
        flat["suffix_text"] = None if text is None else text[middle:end]
    return flat


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
