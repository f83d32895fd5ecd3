"""Parts into one file in window order, without ever holding more than a chunk of rows."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from byrote.errors import DamageError, RunError
from byrote.store.files import atomic_file
from byrote.store.tables import open_parquet, parquet_writer, read_table, stored_rows

ROWS_PER_CHUNK = 32_768
MOST_CHARACTERS = 1 << 40
"""No document has as many."""
MARK_EVERY = 64
"""Of the windows of a part, in order, the place of every so manieth is held; chunks begin at such places."""
NO_PLACE = np.iinfo(np.int64).max
NOWHERE = (NO_PLACE, -NO_PLACE)
"""Lowest and highest place in an empty part."""

Bounds = tuple[int, int]
"""The first place of a stretch, and the first behind it."""


class ByPlace:
    """`windows` windows in the order of their `documents` and, inside one, of their first characters."""

    def __init__(self, documents: Iterable[str], windows: int) -> None:
        self.windows = windows
        self._numbers = {name: number for number, name in enumerate(documents)}

    def places(self, path: Path) -> NDArray[np.int64]:
        """The place of every window of a part among all that documents could have."""
        with open_parquet(path) as file:
            table = file.read(columns=["document", "char_start"])
        # A part is of few documents, a run perhaps of a million.
        documents = table.column("document").combine_chunks().dictionary_encode()
        numbers = np.array([self._numbers[name] for name in documents.dictionary.to_pylist()], np.int64)
        starts = table.column("char_start").to_numpy()
        return np.asarray(numbers[documents.indices.to_numpy()] * MOST_CHARACTERS + starts)


class ByList:
    """Windows in the order of all their ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._places: dict[str, int] = {}
        for window_id in ids:
            self._places.setdefault(window_id, len(self._places))

    @property
    def windows(self) -> int:
        return len(self._places)

    def places(self, path: Path) -> NDArray[np.int64]:
        """The place of every window of a part, -1 for those that nobody asked for."""
        return np.array([self._places.get(window_id, -1) for window_id in stored_ids(path).to_pylist()], np.int64)


Order = Sequence[str] | ByPlace
"""The order of a finished table."""


class MergePlan:
    """Which part holds which stretch of the order. What is held of every window is a sixty-fourth of a number.

    `order` None keeps windows as they were written. Every window is in one part, and all of them are there.
    """

    def __init__(self, parts: Sequence[Path], order: Order | None) -> None:
        self._parts, self._order = parts, _order(parts, order)
        marks, ends, stored, known = list[NDArray[np.int64]](), list[tuple[int, int]](), 0, 0
        for path in parts:
            places = np.sort(self._order.places(path))
            stored, known = stored + places.size, known + int((places >= 0).sum())
            marks.append(places[::MARK_EVERY])
            ends.append((int(places[0]), int(places[-1])) if places.size else NOWHERE)
        self._marks = np.unique(np.concatenate([np.empty(0, np.int64), *marks]))
        self._lowest, self._highest = np.array(ends, np.int64).reshape(-1, 2).T
        self.windows = stored
        self._require_none_twice()
        _require_all(self._order.windows, stored, known)

    def chunks(self, windows_per_chunk: int) -> Iterator[tuple[Bounds, list[int]]]:
        """Slices of the order, of about so many windows, with the indices of the parts that can hold any of it."""
        marks = self._marks[:: max(1, windows_per_chunk // MARK_EVERY)].tolist()
        for first, behind in pairwise([*marks, NO_PLACE]):
            is_touched = (self._lowest < behind) & (self._highest >= first)
            yield (first, behind), np.flatnonzero(is_touched).tolist()

    def rows(self, index: int, path: Path, bounds: Bounds) -> pa.Table:
        """The rows at `path`, a table of part `index`, whose windows lie within `bounds`, each with its place."""
        table, first_part = _read(path), self._parts[index]
        row_of_window = pc.index_in(table.column("window_id"), value_set=stored_ids(first_part))
        places = pc.take(pa.array(self._order.places(first_part)), row_of_window)
        first, behind = bounds
        is_inside = pc.and_(pc.greater_equal(places, first), pc.less(places, behind))
        return table.append_column("position", places).filter(is_inside)

    def _require_none_twice(self) -> None:
        for (first, behind), indices in self.chunks(ROWS_PER_CHUNK):
            places = np.concatenate([self._order.places(self._parts[index]) for index in indices])
            inside = np.sort(places[(places >= max(first, 0)) & (places < behind)])
            if (np.diff(inside) == 0).any():
                raise RunError("A window is in two parts of the run; start over with --fresh.")


def merge_parts(
    plan: MergePlan, parts: Sequence[Path], target: Path, *, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK
) -> int:
    """Write the rows of `parts` to `target`, windows in the plan's order, `rank` rising inside one; count them."""
    total = sum(stored_rows(path) for path in parts)
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
    return ByList(order if order is not None else (one for path in parts for one in stored_ids(path).to_pylist()))


def _read(path: Path) -> pa.Table:
    try:
        return read_table(path)
    except DamageError as error:
        raise DamageError(
            f"{path} was damaged while the run was open; run the same command again to measure it anew."
        ) from error


def stored_ids(path: Path) -> pa.Array:
    """The window ids of a table, in its order."""
    with open_parquet(path) as file:
        column = file.read(columns=["window_id"]).column("window_id")
    return pa.concat_arrays([pa.array([], type=pa.string()), *column.chunks])


def _require_all(windows: int, stored: int, known: int) -> None:
    """`stored` windows are in the parts, `known` of them were asked for, none of them twice."""
    missing = windows - known
    if missing or stored != windows:
        raise RunError(
            f"The run is not complete: {windows} windows were asked for, {stored} are stored and "
            f"{missing} are missing; run the same command again to finish it."
        )
