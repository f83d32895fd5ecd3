"""Declared columns and plain rows as sealed Parquet tables, and the one way back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from byrote.errors import RunError
from byrote.files import open_regular
from byrote.store.columns import Column, Kind, Schema
from byrote.store.files import OPEN_SEAL, atomic_file, require_sealed, seal

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
RUN_KEY, TABLE_KEY, SEAL_KEY = "byrote.run_id", "byrote.table", "byrote.seal"
TEXT_COLUMNS: Schema = tuple(
    Column(name, "text", is_required=True) for name in ("name", "split", "content_hash", "text")
)
BATCH_CHARACTERS = 1 << 24
BATCH_TEXTS = 1 << 16

Row = Mapping[str, Any]


def arrow_schema(columns: Schema) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[kind], nullable=not is_required) for name, kind, is_required in columns])


def table_of(rows: Iterable[Row], columns: Schema) -> pa.Table:
    """Rows as a table with exactly these columns; a row with others is a bug of ours."""
    listed: Sequence[Row] = list(rows)
    names = {column.name for column in columns}
    for row in listed:
        assert row.keys() == names, f"columns {sorted(row.keys() ^ names)} do not fit"
    return pa.Table.from_pylist(listed, schema=arrow_schema(columns))


def write_table(path: Path, rows: Iterable[Row], schema: Schema, *, run_id: str) -> None:
    """Write the rows atomically, sealed, as the table of this run that the file is named after."""
    write_batches(path, [rows], schema, run_id=run_id)


def write_batches(
    path: Path, batches: Iterable[Iterable[Row]], schema: Schema, *, run_id: str, values_repeat: bool = True
) -> None:
    """Write as `write_table` does, holding one batch of rows at a time. Where `values_repeat`, equal values are
    stored once."""
    with atomic_file(path) as file:
        with parquet_writer(file, arrow_schema(schema), values_repeat=values_repeat) as writer:
            for rows in batches:
                writer.write_table(table_of(rows, schema))
            writer.add_key_value_metadata({RUN_KEY: run_id, TABLE_KEY: path.stem, SEAL_KEY: OPEN_SEAL})
        seal(file)


def parquet_writer(file: object, schema: pa.Schema, *, values_repeat: bool = True) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True, use_dictionary=values_repeat)


@contextmanager
def open_table(path: Path, *, run_id: str | None = None) -> Iterator[pq.ParquetFile]:
    """The table at `path`. DamageError: it is not as it was written; RunError: it is of another run or file name.

    Without a `run_id` only the seal is checked.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_regular(path))
            require_sealed(file, path)
            table = pq.ParquetFile(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RunError(f"Cannot read {path}: {error.strerror}.") from error
        stored = table.metadata.metadata
        found, name = stored[RUN_KEY.encode()].decode(), stored[TABLE_KEY.encode()].decode()
        if run_id is not None and (found, name) != (run_id, path.stem):
            raise RunError(
                f"{path} is not of this run: it says {name} of run {found[:8]}, but identity.json says run "
                f"{run_id[:8]}. Move away the one that comes from elsewhere, and run the same command again."
            )
        yield table


def read_table(path: Path, *, run_id: str | None = None) -> pa.Table:
    """The whole table at `path`, checked as in `open_table`."""
    with open_table(path, run_id=run_id) as table:
        return table.read()


def open_parquet(path: Path) -> pq.ParquetFile:
    """The file at `path`, unchecked. Absolute: Arrow takes a relative path with a colon for a URI."""
    return pq.ParquetFile(path.absolute())


def row_batches(path: Path, *, rows_per_batch: int = 1 << 16) -> Iterator[list[dict[str, Any]]]:
    """The rows of an unchecked table, some at a time."""
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=rows_per_batch):
            yield batch.to_pylist()


def stored_rows(path: Path) -> int:
    """The number of rows at `path`, by its footer."""
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


def stored_ids(path: Path) -> pa.Array:
    """The window ids of a table, in its order."""
    with open_parquet(path) as file:
        column = file.read(columns=["window_id"]).column("window_id")
    return pa.concat_arrays([pa.array([], type=pa.string()), *column.chunks])


def write_texts(path: Path, documents: Iterable[Any], *, run_id: str) -> None:
    """Write the corpus documents as a sealed table."""
    # Looking for equal texts would take three times as long as writing them.
    write_batches(path, text_batches(documents), TEXT_COLUMNS, run_id=run_id, values_repeat=False)


def text_batches(documents: Iterable[Any]) -> Iterator[list[dict[str, Any]]]:
    """Rows in batches of about BATCH_CHARACTERS: texts as a whole would be held a second time."""
    batch, characters = list[dict[str, Any]](), 0
    for document in documents:
        text, split = document.text, str(document.split)
        batch.append({"name": document.name, "split": split, "content_hash": document.content_hash, "text": text})
        characters += len(text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
            yield batch
            batch, characters = [], 0
    yield batch
