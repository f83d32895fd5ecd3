"""The one way from declared columns and plain rows to Arrow tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rote.store.columns import Kind, Schema

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
