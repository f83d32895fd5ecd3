"""Sealed tables: Parquet files that say which run and which table of it they are, and that they are whole.

The parts of an unfinished run, its blocks and its texts are such tables. Those of a finished run are bound by its
manifest instead.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import RunError
from rote.files import open_regular, read_bytes
from rote.store.atomic import atomic_file
from rote.store.columns import Schema
from rote.store.schema import arrow_schema, table_of
from rote.store.seal import OPEN_SEAL, damaged, is_sealed, seal

RUN_KEY, TABLE_KEY, SEAL_KEY = "rote.run_id", "rote.table", "rote.seal"


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], schema: Schema, *, run_id: str) -> None:
    """Write the rows atomically as the table of this run that the file's name says."""
    write_batches(path, [rows], schema, run_id=run_id)


def write_batches(
    path: Path,
    batches: Iterable[Iterable[Mapping[str, Any]]],
    schema: Schema,
    *,
    run_id: str,
    values_repeat: bool = True,
) -> None:
    """Write the rows as `write_table` does, one batch after the other: no more than one is held. Where `values_repeat`,
    equal ones are stored once."""
    with atomic_file(path) as file:
        with parquet_writer(file, arrow_schema(schema), values_repeat=values_repeat) as writer:
            for rows in batches:
                writer.write_table(table_of(rows, schema))
            writer.add_key_value_metadata({RUN_KEY: run_id, TABLE_KEY: path.stem, SEAL_KEY: OPEN_SEAL})
        seal(file)


def read_table(path: Path, *, run_id: str | None = None) -> pa.Table:
    """The table at `path`. DamageError: it is not as it was written; RunError: it is of another run or place.

    Without a `run_id` only the seal is checked.
    """
    with open_table(path, run_id=run_id) as file:
        return file.read()


def check_table(path: Path, *, run_id: str) -> int:
    """The number of rows at `path`, which is checked as `read_table` does and never held whole."""
    with _readable(path), open_regular(path) as file:
        return int(_checked(file, path, run_id).metadata.num_rows)


def open_table(path: Path, *, run_id: str | None = None) -> pq.ParquetFile:
    """The file at `path`, checked as `read_table` does and held, for whoever needs a part of it."""
    with _readable(path):
        return _checked(io.BytesIO(read_bytes(path)), path, run_id)


def open_parquet(path: Path) -> pq.ParquetFile:
    """The file at `path`, as it is. Absolute: Arrow takes a relative path with a colon for a URI."""
    return pq.ParquetFile(path.absolute())


def stored_rows(path: Path) -> int:
    """The number of rows at `path`, by its footer."""
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from error


def _checked(file: BinaryIO, path: Path, run_id: str | None) -> pq.ParquetFile:
    if not is_sealed(file):
        raise damaged(path, f"its {file.seek(0, io.SEEK_END):,} bytes do not fit its seal")
    table = pq.ParquetFile(file)
    if run_id is not None:
        _require_own(path, table.metadata.metadata, run_id)
    return table


def parquet_writer(file: object, schema: pa.Schema, *, values_repeat: bool = True) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True, use_dictionary=values_repeat)


def _require_own(path: Path, facts: Mapping[bytes, bytes], run_id: str) -> None:
    found, table = facts[RUN_KEY.encode()].decode(), facts[TABLE_KEY.encode()].decode()
    if (found, table) != (run_id, path.stem):
        raise RunError(
            f"{path} is not of this run: it says {table} of run {found[:8]}, but identity.json says run {run_id[:8]}. "
            "Take away the one that comes from elsewhere, and run the same command again."
        )
