"""Parts into one file in window order, without ever holding more than a chunk of rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rote.errors import DamageError, RunError
from rote.store.atomic import atomic_file
from rote.store.tables import parquet_writer, read_table

ROWS_PER_CHUNK = 32_768


class MergePlan:
    """For every window of the run: its place in the output and the part it is in."""

    def __init__(self, parts: Sequence[Path], order: Sequence[str] | None) -> None:
        ids_of_part = [stored_ids(path) for path in parts]
        stored = pa.concat_arrays([pa.array([], type=pa.string()), *ids_of_part])
        self.order: pa.Array = stored if order is None else pa.array(order, type=pa.string())
        _require_same_windows(stored, self.order)
        # One look-up for all parts: each call builds a hash table of the whole order.
        positions = pc.index_in(stored, value_set=self.order).to_numpy(zero_copy_only=False)
        ends = np.cumsum([len(ids) for ids in ids_of_part])
        self._positions_of_part = np.split(positions, ends[:-1]) if parts else []

    def chunks(self, windows_per_chunk: int) -> Iterator[tuple[pa.Array, list[int]]]:
        """Slices of the order, each with the indices of the parts that hold any of its windows."""
        parts_of_chunk: dict[int, list[int]] = {}
        for index, positions in enumerate(self._positions_of_part):
            for chunk in np.unique(positions // windows_per_chunk):
                parts_of_chunk.setdefault(int(chunk), []).append(index)
        for chunk in range(-(-len(self.order) // windows_per_chunk)):
            ids = self.order.slice(chunk * windows_per_chunk, windows_per_chunk)
            yield ids, parts_of_chunk.get(chunk, [])


def merge_parts(
    plan: MergePlan, parts: Sequence[Path], target: Path, *, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK
) -> int:
    """Write the rows of `parts` to `target`, windows in the plan's order, `rank` rising inside one; count them."""
    windows, total = len(plan.order), sum(_row_count(path) for path in parts)
    # A window may have many continuations: bound the rows of a chunk, not its windows.
    windows_per_chunk = max(1, rows_per_chunk * windows // max(total, windows, 1))
    sort_keys = [("position", "ascending")] + [("rank", "ascending")] * ("rank" in schema.names)
    written = 0
    with atomic_file(target) as file, parquet_writer(file, schema) as writer:
        for ids, indices in plan.chunks(windows_per_chunk):
            tables = [_rows_of(parts[index], ids) for index in indices]
            merged = pa.concat_tables(tables).sort_by(sort_keys).drop_columns("position")
            writer.write_table(merged.select(schema.names).cast(schema))
            written += merged.num_rows
    if written != total:
        raise RunError(f"{target.parent}: {total} rows in the parts but {written} of them belong to a known window.")
    return written


def _rows_of(path: Path, ids: pa.Array) -> pa.Table:
    table = _read(path)
    position = pc.index_in(table.column("window_id"), value_set=ids)
    return table.append_column("position", position).filter(pc.is_valid(position))


def _read(path: Path) -> pa.Table:
    try:
        return read_table(path)
    except DamageError as error:
        raise DamageError(
            f"{path} was damaged while the run was open; run the same command again to measure it anew."
        ) from error


def stored_ids(path: Path) -> pa.Array:
    """The window ids of a table, in its order."""
    with pq.ParquetFile(path) as file:
        column = file.read(columns=["window_id"]).column("window_id")
    return pa.concat_arrays([pa.array([], type=pa.string()), *column.chunks])


def _row_count(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def _require_same_windows(stored: pa.Array, order: pa.Array) -> None:
    if len(pc.unique(stored)) != len(stored):
        raise RunError("A window is in two parts of the run; start over with --fresh.")
    missing = pc.sum(pc.invert(pc.is_in(order, value_set=stored))).as_py() or 0
    if missing or len(order) != len(stored):
        raise RunError(
            f"The run is not complete: {len(order)} windows were asked for, {len(stored)} are stored and "
            f"{missing} are missing; run the same command again to finish it."
        )
