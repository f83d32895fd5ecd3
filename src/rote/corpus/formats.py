"""Readers: the records of one file. Text is kept exactly as written, newlines included; only a BOM is removed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rote.corpus.json_lines import read_json_lines
from rote.corpus.plain import read_plain_text
from rote.corpus.saved_datasets import dataset_rows
from rote.errors import TextError
from rote.files import require_regular

SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
ROWS_PER_BATCH = 1024


class Record(NamedTuple):
    """One document of a file. `key` is None when the file is the document, else the record's id or position."""

    key: str | None
    text: str


def read_records(path: str | Path) -> Iterator[Record]:
    """The documents in `path`, in file order. The ending decides the format (`SUFFIXES`); a folder is a dataset."""
    suffix = os.path.splitext(path)[1].lower()
    if os.path.isdir(path):
        for position, (place, fields) in enumerate(dataset_rows(Path(path)), start=1):
            yield _record(fields.get("id"), fields["text"], place=place, position=position)
    elif suffix == ".parquet":
        yield from _parquet_records(Path(path))
    elif suffix == ".jsonl":
        for number, place, fields in read_json_lines(Path(path)):
            yield _record(fields.get("id"), fields.get("text"), place=place, position=number)
    else:
        yield Record(None, read_plain_text(path))


def _parquet_records(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    position = 0
    try:
        require_regular(path)
        # Absolute: Arrow takes a relative path with a colon for a URI.
        with pq.ParquetFile(path.absolute()) as file:
            names = file.schema_arrow.names
            if "text" not in names:
                raise TextError(f"{path} has no column 'text' (it has {', '.join(names)}); rename the text column.")
            columns = [name for name in ("id", "text") if name in names]
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                for fields in batch.to_pylist():
                    position += 1
                    place = f"{path}, row {position}"
                    yield _record(fields.get("id"), fields["text"], place=place, position=position)
    except UnicodeDecodeError as error:
        raise TextError(f"{path} cannot be read as Parquet: row {position} or later is not UTF-8 text.") from error
    except (OSError, pa.ArrowException, OverflowError, ValueError) as error:
        words = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise TextError(f"{path} cannot be read as Parquet: {words.rstrip('.')}.") from error


def _record(identifier: Any, text: Any, *, place: str, position: int) -> Record:
    if not isinstance(text, str):
        raise TextError(f"{place}: field 'text' is missing or not a string; give every record its text.")
    if identifier is not None and not isinstance(identifier, str | int):
        raise TextError(f"{place}: field 'id' is {type(identifier).__name__}; use a string or a whole number.")
    return Record(str(position) if identifier is None or identifier == "" else str(identifier), text)
