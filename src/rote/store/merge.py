"""Parts into one file in window order, without ever holding more than a chunk of rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rote.errors import DamageError, RunError
from rote.store.atomic import atomic_file
from rote.store.parquet_tables import parquet_writer, read_table

ROWS_PER_CHUNK = 32_768
MOST_CHARACTERS = 1 << 40
"""No document has as many."""


class ByPlace(NamedTuple):
    """Windows in the order of their documents and, inside one, of their first characters."""

    documents: Sequence[str]
    windows: int
    """How many windows the run has."""

    def places(self, path: Path) -> NDArray[np.int64]:
        """The place of every window of a part among all that documents could have."""
        with pq.ParquetFile(path) as file:
            table = file.read(columns=["document", "char_start"])
        documents = pc.index_in(table.column("document"), value_set=pa.array(self.documents, type=pa.string()))
        assert documents.null_count == 0, "a window of a document that the run does not have"
        numbers = documents.to_numpy().astype(np.int64)
        places: NDArray[np.int64] = numbers * MOST_CHARACTERS + table.column("char_start").to_numpy()
        return places


class ByList(NamedTuple):
    """Windows in the order of a list of all their ids."""

    ids: pa.Array

    @property
    def windows(self) -> int:
        return len(self.ids)

    def places(self, path: Path) -> NDArray[np.int64]:
        found = pc.index_in(stored_ids(path), value_set=self.ids)
        places: NDArray[np.int64] = pc.fill_null(found.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        return places


Order = Sequence[str] | ByPlace
"""The order of a finished table."""


class MergePlan:
    """The place in the output of every window of the run, by the part it is in: a number for each is all that is held.

    `order` None keeps windows as they were written.
    """

    def __init__(self, parts: Sequence[Path], order: Order | None) -> None:
        wanted = _order(parts, order)
        self._parts = parts
        self._places = [wanted.places(path) for path in parts]
        self._sorted = np.sort(np.concatenate([np.empty(0, np.int64), *self._places]))
        _require_same_windows(self._sorted, wanted.windows)

    @property
    def windows(self) -> int:
        return len(self._sorted)

    def chunks(self, windows_per_chunk: int) -> Iterator[tuple[tuple[int, int], list[int]]]:
        """First and last place of each slice of the order, with the indices of the parts that can hold any of it."""
        held = [index for index, places in enumerate(self._places) if places.size]
        lowest = np.array([self._places[index].min() for index in held])
        highest = np.array([self._places[index].max() for index in held])
        for start in range(0, self.windows, windows_per_chunk):
            inside = self._sorted[start : start + windows_per_chunk]
            first, last = int(inside[0]), int(inside[-1])
            yield (first, last), [held[index] for index in np.flatnonzero((lowest <= last) & (highest >= first))]

    def rows(self, index: int, path: Path, bounds: tuple[int, int]) -> pa.Table:
        """The rows at `path`, a table of part `index`, whose windows lie within `bounds`, each with its place."""
        table = _read(path)
        row_of_window = pc.index_in(table.column("window_id"), value_set=stored_ids(self._parts[index]))
        places = pc.take(pa.array(self._places[index]), row_of_window)
        first, last = bounds
        is_inside = pc.and_(pc.greater_equal(places, first), pc.less_equal(places, last))
        return table.append_column("position", places).filter(is_inside)


def merge_parts(
    plan: MergePlan, parts: Sequence[Path], target: Path, *, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK
) -> int:
    """Write the rows of `parts` to `target`, windows in the plan's order, `rank` rising inside one; count them."""
    total = sum(pq.read_metadata(path).num_rows for path in parts)
    # A window may have many continuations: bound the rows of a chunk, not its windows.
    windows_per_chunk = max(1, rows_per_chunk * plan.windows // max(total, plan.windows, 1))
    sort_keys = [("position", "ascending")] + [("rank", "ascending")] * ("rank" in schema.names)
    written = 0
    with atomic_file(target) as file, parquet_writer(file, schema) as writer:
        for bounds, indices in plan.chunks(windows_per_chunk):
            tables = [plan.rows(index, parts[index], bounds) for index in indices]
            merged = pa.concat_tables(tables).sort_by(sort_keys).drop_columns("position")
            writer.write_table(merged.select(schema.names).cast(schema))
            written += merged.num_rows
    if written != total:
        raise RunError(f"{target.parent}: {total} rows in the parts but {written} of them belong to a known window.")
    return written


def _order(parts: Sequence[Path], order: Order | None) -> ByPlace | ByList:
    if isinstance(order, ByPlace):
        return order
    if order is not None:
        return ByList(pa.array(order, type=pa.string()))
    return ByList(pc.unique(pa.concat_arrays([pa.array([], type=pa.string()), *map(stored_ids, parts)])))


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


def _require_same_windows(places: NDArray[np.int64], windows: int) -> None:
    """Every window once, and all of them; `places` are sorted and negative for windows that nobody asked for."""
    if (np.diff(places[places >= 0]) == 0).any():
        raise RunError("A window is in two parts of the run; start over with --fresh.")
    missing = windows - int((places >= 0).sum())
    if missing or len(places) != windows:
        raise RunError(
            f"The run is not complete: {windows} windows were asked for, {len(places)} are stored and "
            f"{missing} are missing; run the same command again to finish it."
        )
