"""The rows of an unfinished run: parts, each written whole, and the windows that they finish. At the end they are
merged into one table in window order, holding one stretch of rows and two numbers per window.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from byrote.errors import DamageError, RunError
from byrote.store import tables
from byrote.store.columns import Schema
from byrote.store.files import atomic_file, make_folder, read_sealed_json, write_sealed_json
from byrote.store.folder import PartFiles, RunFolder

ROWS_PER_STRETCH = 32_768
MOST_STRETCHES = 256
"""Files that are open at once while tables are merged."""
MOST_CHARACTERS = 1 << 40
"""No document has as many."""


class ByPlace:
    """`windows` windows in the order of their `documents` and, inside one, of their first characters."""

    def __init__(self, documents: Iterable[str], windows: int) -> None:
        self.windows = windows
        self._numbers = {name: number for number, name in enumerate(documents)}

    def positions(self, part: Path) -> NDArray[np.int64]:
        with tables.open_parquet(part) as file:
            table = file.read(columns=["document", "char_start"])
        # A part is of few documents, a run perhaps of a million.
        documents = table.column("document").combine_chunks().dictionary_encode()
        numbers = np.array([self._numbers[name] for name in documents.dictionary.to_pylist()], np.int64)
        starts = table.column("char_start").to_numpy()
        return np.asarray(numbers[documents.indices.to_numpy()] * MOST_CHARACTERS + starts)


Order = Sequence[str] | ByPlace
"""The order of a finished table."""


class MergePlan:
    """Which part holds which stretch of the order. Every window of the order is in exactly one part.

    `order` None keeps windows as they were written.
    """

    def __init__(self, parts: Sequence[Path], order: Order | None) -> None:
        self._parts = parts
        if isinstance(order, ByPlace):
            wanted = order.windows
            self._positions = [order.positions(part) for part in parts]
        else:
            ids = [tables.stored_ids(part).to_pylist() for part in parts]
            place_of = {name: n for n, name in enumerate(dict.fromkeys(chain(*ids) if order is None else order))}
            wanted = len(place_of)
            # -1: a window that is not in the order.
            self._positions = [np.array([place_of.get(name, -1) for name in own], np.int64) for own in ids]
        self._sorted = np.sort(np.concatenate([np.empty(0, np.int64), *self._positions]))
        self.windows = self._sorted.size
        known = self._sorted[self._sorted >= 0]
        if (np.diff(known) == 0).any():
            raise RunError("A window is in two parts of the run; start over with --fresh.")
        missing = wanted - known.size
        if missing or self.windows != wanted:
            raise RunError(
                f"The run is not complete: {wanted} windows were asked for, {self.windows} are stored and "
                f"{missing} are missing; run the same command again to finish it."
            )

    def stretches(self, windows_per_stretch: int) -> NDArray[np.int64]:
        """The first positions of stretches of the order of so many windows."""
        return self._sorted[::windows_per_stretch]

    def rows(self, index: int, path: Path) -> pa.Table:
        """The rows at `path`, a table of part `index`, each with the position of its window."""
        try:
            table = tables.read_table(path)
        except DamageError as error:
            raise DamageError(
                f"{path} was damaged while the run was open; run the same command to measure it again."
            ) from error
        row_of_window = pc.index_in(table.column("window_id"), value_set=tables.stored_ids(self._parts[index]))
        placed = table.append_column("position", pc.take(pa.array(self._positions[index]), row_of_window))
        return placed.filter(pc.is_valid(placed.column("position")))


def merge_parts(
    plan: MergePlan, parts: Sequence[Path], target: Path, *, schema: pa.Schema, rows_per_stretch: int = ROWS_PER_STRETCH
) -> None:
    """Write the rows of `parts` to `target`, windows in the plan's order, `rank` rising inside one.

    Windows were measured in random order, so every part has some of every stretch: each part is read once and dealt out
    to a file per stretch, and each of these is read once and sorted.
    """
    total = sum(tables.stored_rows(path) for path in parts)
    # A window may have many continuations: bound the rows of a stretch, not its windows.
    rows_per_stretch = max(rows_per_stretch, total // MOST_STRETCHES)
    firsts = plan.stretches(max(1, rows_per_stretch * plan.windows // max(total, plan.windows, 1)))
    sort_keys = [("position", "ascending")] + [("rank", "ascending")] * ("rank" in schema.names)
    positioned = schema.append(pa.field("position", pa.int64()))
    written = 0
    with atomic_file(target) as file, tables.parquet_writer(file, schema) as writer, ExitStack() as stack:
        dealt = [stack.enter_context(TemporaryFile(dir=target.parent)) for _ in range(max(1, len(firsts)))]
        with ExitStack() as streams:
            stretches = [streams.enter_context(pa.ipc.new_stream(one, positioned)) for one in dealt]
            for index, path in enumerate(parts):
                rows = plan.rows(index, path).select(positioned.names).cast(positioned)
                numbers = np.searchsorted(firsts, rows.column("position").to_numpy(), side="right") - 1
                for number in np.unique(numbers):
                    stretches[number].write_table(rows.filter(pa.array(numbers == number)))
        for one in dealt:
            one.seek(0)
            merged = pa.ipc.open_stream(one).read_all().sort_by(sort_keys)
            writer.write_table(merged.select(schema.names))
            written += merged.num_rows
            one.truncate(0)
    if written != total:
        raise RunError(f"{target.parent}: {total} rows in the parts but {written} of them belong to a known window.")


PARTS_OF_LEAST = 256
"""So many parts have the least length, then they grow."""
MOST_TIMES_LEAST = 16
ROWS_PER_BATCH = 1 << 16
_PLACE = re.compile(r"(.*)@(0|[1-9][0-9]{0,17})", re.DOTALL | re.ASCII)


class FinishedWindows:
    """A set of window ids. Windows of texts, `<document>@<char_start>`, take one bit per character of their document;
    others are held by name."""

    def __init__(self) -> None:
        self._bits: dict[str, bytearray] = {}
        self._names: set[str] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, window_id: str) -> bool:
        if place := _PLACE.fullmatch(window_id):
            is_held = self.holds_places(place[1], np.array([int(place[2])]))
            return bool(is_held.all()) or window_id in self._names
        return window_id in self._names

    def holds_places(self, document: str, char_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which windows `<document>@<start>` are in the set."""
        bits = np.frombuffer(self._bits.get(document, b""), np.uint8)
        is_held = char_starts >> 3 < bits.size
        starts = char_starts[is_held]
        is_held[is_held] = (bits[starts >> 3] >> (starts & 7)) & 1
        return is_held

    def add_table(self, table: pq.ParquetFile) -> None:
        """The windows of a table, without a Python object for each of them."""
        has_places = {"document", "char_start"} <= set(table.schema_arrow.names)
        columns = ["window_id", "document", "char_start"] if has_places else ["window_id"]
        for batch in table.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
            self._count += batch.num_rows
            ids = batch.column("window_id")
            if not has_places:
                self._names.update(ids.to_pylist())
                continue
            documents, starts = batch.column("document"), batch.column("char_start")
            is_place = pc.equal(ids, pc.binary_join_element_wise(documents, starts.cast(pa.string()), "@"))
            is_place = pc.fill_null(is_place, False)
            self._names.update(ids.filter(pc.invert(is_place)).to_pylist())
            self._add_places(documents.filter(is_place), starts.filter(is_place).to_numpy())

    def _add_places(self, documents: pa.StringArray, starts: NDArray[np.int64]) -> None:
        encoded = documents.dictionary_encode()
        names, numbers = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        order = np.argsort(numbers, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if order.size else ():
            own_starts = starts[own]
            bits, masks = self._bits.setdefault(names[numbers[own[0]]], bytearray()), 1 << (own_starts & 7)
            bits.extend(bytes(max(0, (int(own_starts.max()) >> 3) + 1 - len(bits))))
            # The array has no name: a bytearray cannot grow while an array of it is held.
            np.bitwise_or.at(np.frombuffer(bits, np.uint8), own_starts >> 3, masks.astype(np.uint8))


class Parts:
    """The parts of one run, of which this process is the only writer."""

    def __init__(self, folder: RunFolder, run_id: str, schema: Schema, continuations: Schema | None) -> None:
        self._folder, self._run_id = folder, run_id
        self._schema, self._continuations = schema, continuations
        self._next_number = 1
        self.finished = FinishedWindows()
        """The windows whose rows are safely on the disk."""
        self.mark: str | None = None
        """A key of the run's random order up to which all windows are finished, as far as is known."""
        self.dropped: list[str] = []
        """Parts found cut, damaged or missing; their windows count as not finished."""

    def resume(self) -> None:
        """Find what an earlier process finished; drop what is not whole, merged tables without a manifest too."""
        for path in (self._folder.results, self._folder.continuations):
            path.unlink(missing_ok=True)
        make_folder(self._folder.parts, inside=self._folder.path)
        try:
            listed = read_part_list(self._folder.part_list, run_id=self._run_id)
        except DamageError:
            # It is written anew; only a part that is missing as well is not noticed.
            listed = None
        known = set[int]() if listed is None else set(listed["parts"])
        self.mark = None if listed is None else listed.get("mark")
        for number in sorted(known | set(self._folder.part_numbers())):
            self._resume_part(self._folder.part(number), is_listed=number in known)
        if listed is None:
            # Before part 0: so a folder with parts and without the list has lost it.
            self._write_list()
        if 0 not in self._folder.part_numbers():
            self._write_files(0, [], [])
        if self.dropped:
            self.mark = None
        if known != set(self._folder.part_numbers()):
            self._write_list()

    def write(self, results: Sequence[tables.Row], continuations: Sequence[tables.Row]) -> None:
        """Afterwards these windows are finished, whatever happens next. All of them or none: a part is one unit."""
        ids = {row["window_id"] for row in results}
        assert {row["window_id"] for row in continuations} <= ids, "a continuation of a window of another part"
        self._write_files(self._next_number, results, continuations)
        self._write_list()
        with tables.open_parquet(self._folder.part(self._next_number).results) as table:
            self.finished.add_table(table)
        self._next_number += 1

    def is_due(self, rows: int, *, least: int) -> bool:
        """Whether so many rows should be a part. Long runs write longer ones: all of them are read to resume, so ten
        million windows should be some thousand files."""
        return rows >= least and rows >= min(MOST_TIMES_LEAST * least, len(self.finished) // PARTS_OF_LEAST)

    def restore(self) -> None:
        """The rows of the finished tables are a part again, so that the run can go on from them."""
        make_folder(self._folder.parts, inside=self._folder.path)
        self._write_files(0, [], [])
        part, run_id = self._folder.part(1), self._run_id
        if self._continuations is not None:
            rows = tables.row_batches(self._folder.continuations)
            tables.write_batches(part.continuations, rows, self._continuations, run_id=run_id)
        tables.write_batches(part.results, tables.row_batches(self._folder.results), self._schema, run_id=run_id)
        self._write_list()
        self._next_number = 2

    def merge(self, order: Order | None) -> list[Path]:
        """Write the finished tables, windows in the given order (None: as written); returns their paths.

        Raises a RunError, and changes nothing, unless the finished windows are exactly those of `order`.
        """
        parts = [self._folder.part(number) for number in self._folder.part_numbers()]
        result_files = [part.results for part in parts]
        plan = MergePlan(result_files, order)
        merge_parts(plan, result_files, self._folder.results, schema=tables.arrow_schema(self._schema))
        if self._continuations is None:
            return [self._folder.results]
        files = [part.continuations for part in parts]
        merge_parts(plan, files, self._folder.continuations, schema=tables.arrow_schema(self._continuations))
        return [self._folder.results, self._folder.continuations]

    def _resume_part(self, part: PartFiles, *, is_listed: bool) -> None:
        """Take its windows for finished, or remove its files where it is not whole."""
        try:
            with ExitStack() as stack:
                results = stack.enter_context(tables.open_table(part.results, run_id=self._run_id))
                self._require_columns(results, self._schema)
                if self._continuations is not None:
                    continuations = stack.enter_context(tables.open_table(part.continuations, run_id=self._run_id))
                    self._require_columns(continuations, self._continuations)
                self.finished.add_table(results)
                self._next_number = part.number + 1
        except (DamageError, FileNotFoundError):
            # A continuations file alone is a write that was interrupted half-way, unless the part was whole before.
            if is_listed or part.results.exists():
                self.dropped.append(part.results.name)
            self._folder.remove_part(part.number)

    def _require_columns(self, stored: pq.ParquetFile, schema: Schema) -> None:
        before, now = stored.schema_arrow, tables.arrow_schema(schema)
        if not before.equals(now):
            changed = sorted({field.name for field in set(before) ^ set(now)}) or ["their order"]
            raise RunError(
                f"{self._folder.path} holds a run with other columns ({', '.join(changed)}); "
                "choose another folder with --out, or start over with --fresh."
            )

    def _write_list(self) -> None:
        numbers = self._folder.part_numbers()
        content = {
            "run_id": self._run_id,
            "keeps_continuations": self._continuations is not None,
            "parts": numbers,
            "mark": self.mark,
        }
        write_sealed_json(self._folder.part_list, content)

    def _write_files(self, number: int, results: Sequence[tables.Row], continuations: Sequence[tables.Row]) -> None:
        part = self._folder.part(number)
        if self._continuations is not None:
            tables.write_table(part.continuations, continuations, self._continuations, run_id=self._run_id)
        else:
            assert not continuations, "this run keeps no continuations"
        tables.write_table(part.results, results, self._schema, run_id=self._run_id)


def read_part_list(path: Path, *, run_id: str) -> dict[str, Any] | None:
    """The content of parts.json: run_id, keeps_continuations, parts (their numbers) and mark; None when there is none.

    A RunError when it is of another run, a DamageError when it was changed.
    """
    content = read_sealed_json(path)
    if content is not None and content["run_id"] != run_id:
        raise RunError(
            f"{path} is not of this run: it says run {content['run_id'][:8]}, but identity.json says run {run_id[:8]}. "
            "Move away the one that comes from elsewhere, and run the same command again."
        )
    return content
