"""Parts into one table in window order, holding one chunk of rows and two numbers per window."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from byrote.errors import DamageError, RunError
from byrote.store.files import atomic_file
from byrote.store.tables import open_parquet, parquet_writer, read_table, stored_ids, stored_rows

ROWS_PER_CHUNK = 32_768
MOST_CHARACTERS = 1 << 40
"""No document has as many."""
BEHIND_ALL = np.iinfo(np.int64).max

Positions = NDArray[np.int64]
Bounds = tuple[int, int]
"""The first position of a stretch of the order, and the first behind it."""


class ByPlace:
    """`windows` windows in the order of their `documents` and, inside one, of their first characters."""

    def __init__(self, documents: Iterable[str], windows: int) -> None:
        self.windows = windows
        self._numbers = {name: number for number, name in enumerate(documents)}

    def positions(self, part: Path) -> Positions:
        with open_parquet(part) as file:
            table = file.read(columns=["document", "char_start"])
        # A part is of few documents, a run perhaps of a million.
        documents = table.column("document").combine_chunks().dictionary_encode()
        numbers = np.array([self._numbers[name] for name in documents.dictionary.to_pylist()], np.int64)
        starts = table.column("char_start").to_numpy()
        return np.asarray(numbers[documents.indices.to_numpy()] * MOST_CHARACTERS + starts)


class _ByList:
    """Windows in the order of all their ids; -1 for a window that is not among them."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._positions = {window_id: position for position, window_id in enumerate(dict.fromkeys(ids))}
        self.windows = len(self._positions)

    def positions(self, part: Path) -> Positions:
        return np.array([self._positions.get(window_id, -1) for window_id in stored_ids(part).to_pylist()], np.int64)


Order = Sequence[str] | ByPlace
"""The order of a finished table."""


class MergePlan:
    """Which part holds which stretch of the order. Every window of the order is in exactly one part.

    `order` None keeps windows as they were written.
    """

    def __init__(self, parts: Sequence[Path], order: Order | None) -> None:
        self._parts = parts
        if order is None:
            order = [window_id for part in parts for window_id in stored_ids(part).to_pylist()]
        wanted = order if isinstance(order, ByPlace) else _ByList(order)
        self._positions = [wanted.positions(part) for part in parts]
        self._sorted = np.sort(np.concatenate([np.empty(0, np.int64), *self._positions]))
        self._lowest = np.array([own.min(initial=BEHIND_ALL) for own in self._positions])
        self._highest = np.array([own.max(initial=-1) for own in self._positions])
        self.windows = self._sorted.size
        known = self._sorted[self._sorted >= 0]
        if (np.diff(known) == 0).any():
            raise RunError("A window is in two parts of the run; start over with --fresh.")
        missing = wanted.windows - known.size
        if missing or self.windows != wanted.windows:
            raise RunError(
                f"The run is not complete: {wanted.windows} windows were asked for, {self.windows} are stored and "
                f"{missing} are missing; run the same command again to finish it."
            )

    def chunks(self, windows_per_chunk: int) -> Iterator[tuple[Bounds, list[int]]]:
        """Stretches of the order, each with the indices of the parts that may hold any of it."""
        for first, behind in pairwise([*self._sorted[::windows_per_chunk].tolist(), BEHIND_ALL]):
            may_hold = (self._lowest < behind) & (self._highest >= first)
            yield (first, behind), np.flatnonzero(may_hold).tolist()

    def rows(self, index: int, path: Path, bounds: Bounds) -> pa.Table:
        """The rows at `path`, a table of part `index`, whose windows lie within `bounds`, each with its position."""
        try:
            table = read_table(path)
        except DamageError as error:
            raise DamageError(
                f"{path} was damaged while the run was open; run the same command again to measure it anew."
            ) from error
        row_of_window = pc.index_in(table.column("window_id"), value_set=stored_ids(self._parts[index]))
        positions = pc.take(pa.array(self._positions[index]), row_of_window)
        is_inside = pc.and_(pc.greater_equal(positions, bounds[0]), pc.less(positions, bounds[1]))
        return table.append_column("position", positions).filter(is_inside)


def merge_parts(
    plan: MergePlan, parts: Sequence[Path], target: Path, *, schema: pa.Schema, rows_per_chunk: int = ROWS_PER_CHUNK
) -> None:
    """Write the rows of `parts` to `target`, windows in the plan's order, `rank` rising inside one."""
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
