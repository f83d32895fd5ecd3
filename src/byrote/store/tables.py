"""The one way from declared columns and plain rows to Arrow tables."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from byrote.errors import RunError
from byrote.files import open_regular, read_bytes
from byrote.store.columns import Column, Kind, Schema
from byrote.store.files import OPEN_SEAL, atomic_file, damaged, is_sealed, seal
from byrote.types import Split

_TYPES: dict[Kind, pa.DataType] = {
    "text": pa.string(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "list[int32]": pa.list_(pa.int32()),
    "list[float64]": pa.list_(pa.float64()),
    "list[text]": pa.list_(pa.string()),
}


def arrow_schema(columns: Schema) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[kind], nullable=not is_required) for name, kind, is_required in columns])


def table_of(rows: Iterable[Mapping[str, Any]], columns: Schema) -> pa.Table:
    """Rows as a table with exactly these columns; a row with others is a bug of ours."""
    listed: Sequence[Mapping[str, Any]] = list(rows)
    names = {column.name for column in columns}
    for row in listed:
        assert row.keys() == names, f"columns {sorted(row.keys() ^ names)} do not fit"
    return pa.Table.from_pylist(listed, schema=arrow_schema(columns))


RUN_KEY, TABLE_KEY, SEAL_KEY = "byrote.run_id", "byrote.table", "byrote.seal"


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


BATCH_CHARACTERS = 1 << 24
BATCH_TEXTS = 1 << 16
TEXT_COLUMNS: Schema = tuple(
    Column(name, "text", is_required=True) for name in ("name", "split", "content_hash", "text")
)


class Text(Protocol):
    """A document, as far as the store cares."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def split(self) -> Split: ...
    @property
    def content_hash(self) -> str: ...


def write_texts(path: Path, documents: Iterable[Text], *, run_id: str) -> None:
    # Looking for equal texts would take three times as long as writing them.
    write_batches(path, text_batches(documents), TEXT_COLUMNS, run_id=run_id, values_repeat=False)


def text_batches(documents: Iterable[Text]) -> Iterator[list[dict[str, Any]]]:
    """Rows in batches of about BATCH_CHARACTERS: texts as a whole would be held a second time."""
    batch, characters = list[dict[str, Any]](), 0
    for document in documents:
        text = document.text
        batch.append(
            {
                "name": document.name,
                "split": str(document.split),
                "content_hash": document.content_hash,
                "text": text,
            }
        )
        characters += len(text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
            yield batch
            batch, characters = [], 0
    yield batch
