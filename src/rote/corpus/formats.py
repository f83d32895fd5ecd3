"""Readers: the records of one file. Text is kept exactly as written, newlines included; only a BOM is removed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rote.errors import TextError

SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ROWS_PER_BATCH = 1024


class Record(NamedTuple):
    """One document of a file. `key` is None when the file is the document, else the record's id or position."""

    key: str | None
    text: str


def read_records(path: Path) -> Iterator[Record]:
    """The documents in `path`, in file order. The ending decides the format: one of `SUFFIXES`."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _parquet_records(path)
    elif suffix == ".jsonl":
        yield from _json_records(path, read_text(path))
    else:
        yield Record(None, read_text(path))


def read_text(path: Path) -> str:
    """The text of a UTF-8 file as written, without its byte-order mark."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    mark = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
    try:
        text = content[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + mark
        raise TextError(
            f"{path} is not UTF-8 text: byte 0x{content[offset]:02x} at offset {offset}; convert it to UTF-8 first."
        ) from error
    zero = content.find(b"\0")
    if zero >= 0:
        raise TextError(f"{path} is a binary file: zero byte at offset {zero}; give a text file.")
    return text


def _json_records(path: Path, text: str) -> Iterator[Record]:
    # Not splitlines(): JSON strings may hold U+2028 and the like, which are not line ends of the file.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        fields = parse_json_object(line, place)
        yield _record(fields.get("id"), fields.get("text"), place=place, position=number)


def parse_json_object(line: str, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise TextError(f"{place}: not JSON ({error}); write one object a line.") from error
    if not isinstance(fields, dict):
        raise TextError(f"{place}: not a JSON object; write one object a line.")
    return fields


def _parquet_records(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "text" not in names:
                raise TextError(f"{path} has no column 'text' (it has {', '.join(names)}); rename the text column.")
            columns = [name for name in ("id", "text") if name in names]
            position = 0
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                for fields in batch.to_pylist():
                    position += 1
                    place = f"{path}, row {position}"
                    yield _record(fields.get("id"), fields["text"], place=place, position=position)
    except (OSError, pa.ArrowException) as error:
        raise TextError(f"{path} cannot be read as Parquet: {error}.") from error


def _record(identifier: Any, text: Any, *, place: str, position: int) -> Record:
    if not isinstance(text, str):
        raise TextError(f"{place}: field 'text' is missing or not a string; give every record its text.")
    if identifier is not None and not isinstance(identifier, str | int):
        raise TextError(f"{place}: field 'id' is {type(identifier).__name__}; use a string or a whole number.")
    key = str(position) if identifier is None or identifier == "" else str(identifier)
    for value in (key, text):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TextError(
                f"{place}: half of a surrogate pair at character {error.start}, which no UTF-8 text can hold; fix it."
            ) from error
    return Record(key, text)
