"""The rows of an unfinished run: parts, each written whole, and the windows that they finish."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from byrote.errors import DamageError, RunError
from byrote.store.columns import Schema
from byrote.store.files import make_folder, read_sealed_json, write_sealed_json
from byrote.store.folder import PartFiles, RunFolder
from byrote.store.merge import MergePlan, Order, merge_parts
from byrote.store.tables import Row, arrow_schema, open_table, row_batches, write_batches, write_table

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
        if window_id in self._names:
            return True
        place = _PLACE.fullmatch(window_id)
        if place is None:
            return False
        bits, start = self._bits.get(place[1], b""), int(place[2])
        return start >> 3 < len(bits) and bool(bits[start >> 3] >> (start & 7) & 1)

    def holds_places(self, document: str, char_starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which windows `<document>@<start>` are in the set."""
        bits = np.frombuffer(self._bits.get(document, b""), np.uint8)
        is_held = char_starts >> 3 < bits.size
        starts = char_starts[is_held]
        is_held[is_held] = (bits[starts >> 3] >> (starts & 7)) & 1
        return is_held

    def add(self, row: Row) -> None:
        self._count += 1
        document, char_start = row.get("document"), row.get("char_start")
        if isinstance(char_start, int) and row["window_id"] == f"{document}@{char_start}":
            self._bits_up_to(str(document), char_start)[char_start >> 3] |= 1 << (char_start & 7)
        else:
            self._names.add(row["window_id"])

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
            bits, masks = self._bits_up_to(names[numbers[own[0]]], int(own_starts.max())), 1 << (own_starts & 7)
            # The array has no name: a bytearray cannot grow while an array of it is held.
            np.bitwise_or.at(np.frombuffer(bits, np.uint8), own_starts >> 3, masks.astype(np.uint8))

    def _bits_up_to(self, document: str, char_start: int) -> bytearray:
        bits = self._bits.setdefault(document, bytearray())
        bits.extend(bytes(max(0, (char_start >> 3) + 1 - len(bits))))
        return bits


class Parts:
    """The parts of one run, of which this process is the only writer."""

    def __init__(self, folder: RunFolder, run_id: str, schema: Schema, continuations: Schema | None) -> None:
        self._folder, self._run_id = folder, run_id
        self._schema, self._continuations = schema, continuations
        self._next_number = 1
        self.finished = FinishedWindows()
        """The windows whose rows are safely on the disk."""
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
        known = set[int]() if listed is None else set(listed.numbers)
        for number in sorted(known | set(self._folder.part_numbers())):
            self._resume_part(self._folder.part(number), is_listed=number in known)
        if listed is None:
            # Before part 0: so a folder with parts and without the list has lost it.
            self._write_list()
        if 0 not in self._folder.part_numbers():
            self._write_files(0, [], [])
        if known != set(self._folder.part_numbers()):
            self._write_list()

    def write(self, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        """Afterwards these windows are finished, whatever happens next. All of them or none: a part is one unit."""
        ids = {row["window_id"] for row in results}
        assert {row["window_id"] for row in continuations} <= ids, "a continuation of a window of another part"
        self._write_files(self._next_number, results, continuations)
        self._write_list()
        for row in results:
            self.finished.add(row)
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
            rows = row_batches(self._folder.continuations)
            write_batches(part.continuations, rows, self._continuations, run_id=run_id)
        write_batches(part.results, row_batches(self._folder.results), self._schema, run_id=run_id)
        self._write_list()
        self._next_number = 2

    def merge(self, order: Order | None) -> list[Path]:
        """Write the finished tables, windows in the given order (None: as written); returns their paths.

        Raises a RunError, and changes nothing, unless the finished windows are exactly those of `order`.
        """
        parts = [self._folder.part(number) for number in self._folder.part_numbers()]
        result_files = [part.results for part in parts]
        plan = MergePlan(result_files, order)
        merge_parts(plan, result_files, self._folder.results, schema=arrow_schema(self._schema))
        if self._continuations is None:
            return [self._folder.results]
        files = [part.continuations for part in parts]
        merge_parts(plan, files, self._folder.continuations, schema=arrow_schema(self._continuations))
        return [self._folder.results, self._folder.continuations]

    def _resume_part(self, part: PartFiles, *, is_listed: bool) -> None:
        """Take its windows for finished, or remove its files where it is not whole."""
        try:
            with ExitStack() as stack:
                results = stack.enter_context(open_table(part.results, run_id=self._run_id))
                self._require_columns(results, self._schema)
                if self._continuations is not None:
                    continuations = stack.enter_context(open_table(part.continuations, run_id=self._run_id))
                    self._require_columns(continuations, self._continuations)
                self.finished.add_table(results)
                self._next_number = part.number + 1
        except (DamageError, FileNotFoundError):
            # A continuations file alone is a write that was interrupted half-way, unless the part was whole before.
            if is_listed or part.results.exists():
                self.dropped.append(part.results.name)
            self._folder.remove_part(part.number)

    def _require_columns(self, stored: pq.ParquetFile, schema: Schema) -> None:
        before, now = stored.schema_arrow, arrow_schema(schema)
        if not before.equals(now):
            changed = sorted({field.name for field in set(before) ^ set(now)}) or ["their order"]
            raise RunError(
                f"{self._folder.path} holds a run with other columns ({', '.join(changed)}); "
                "choose another folder with --out, or start over with --fresh."
            )

    def _write_list(self) -> None:
        numbers = self._folder.part_numbers()
        content = {"run_id": self._run_id, "keeps_continuations": self._continuations is not None, "parts": numbers}
        write_sealed_json(self._folder.part_list, content)

    def _write_files(self, number: int, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        part = self._folder.part(number)
        if self._continuations is not None:
            write_table(part.continuations, continuations, self._continuations, run_id=self._run_id)
        else:
            assert not continuations, "this run keeps no continuations"
        write_table(part.results, results, self._schema, run_id=self._run_id)


class PartList(NamedTuple):
    """The content of parts.json."""

    numbers: list[int]
    keeps_continuations: bool


def read_part_list(path: Path, *, run_id: str) -> PartList | None:
    """None when there is none; a RunError when it is of another run, a DamageError when it was changed."""
    content = read_sealed_json(path)
    if content is None:
        return None
    if content["run_id"] != run_id:
        raise RunError(
            f"{path} is not of this run: it says run {content['run_id'][:8]}, but identity.json says run {run_id[:8]}. "
            "Take away the one that comes from elsewhere, and run the same command again."
        )
    return PartList(content["parts"], content["keeps_continuations"])
