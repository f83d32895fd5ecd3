"""The rows of an unfinished run, in parts.

What is true at every moment, also right after a SIGKILL or a power cut:
- a part counts when both of its files are there and whole; the results file is written second;
- a window is in at most one part that counts;
- parts.json lists every part that counts, but perhaps the last one: it is written after the part.
So taking over what an earlier process left needs no journal: what is not whole is dropped and measured again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import DamageError, RunError
from rote.store.atomic import make_folder
from rote.store.columns import Schema
from rote.store.folder import Part, RunFolder
from rote.store.id_set import IdSet, Keys, keys_of_file
from rote.store.merge import MergePlan, Order, merge_parts
from rote.store.parquet_tables import open_parquet, open_table, write_batches, write_table
from rote.store.schema import arrow_schema
from rote.store.seal import read_sealed_json, write_sealed_json

Row = Mapping[str, Any]
PARTS_OF_LEAST = 256
"""So many parts have the least length, then they grow."""
MOST_TIMES_LEAST = 16


class Parts:
    """The parts of one run, of which this process is the only writer."""

    def __init__(
        self, folder: RunFolder, run_id: str, schema: Schema, continuations: Schema | None, *, stride: int | None
    ) -> None:
        """`stride`: see `RunSession.open`."""
        self._folder, self._run_id = folder, run_id
        self._schema, self._continuations = schema, continuations
        self._next_number = 1
        self._are_places = stride is not None
        self.finished = IdSet(stride=stride or 1)
        """Ids of the windows whose rows are safely on the disk."""
        self.dropped: list[str] = []
        """Parts found cut, damaged or missing; their windows count as not finished."""

    def take_over(self) -> None:
        """Learn what an earlier process finished; drop what is not whole, merged tables without a manifest too."""
        for path in (self._folder.results, self._folder.continuations):
            path.unlink(missing_ok=True)
        make_folder(self._folder.parts, inside=self._folder.path)
        listed = self._listed()
        parts = map(self._folder.part, sorted({*self._folder.part_numbers(), *listed}))
        self.finished.add_keys(
            keys for part in parts for keys in self._take_over_part(part, is_listed=part[0] in listed)
        )
        if 0 not in self._folder.part_numbers():
            self._write_files(0, [], [])
        if listed != set(self._folder.part_numbers()):
            self._write_list()

    def write(self, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        """Afterwards these windows are finished, whatever happens next. All of them or none: a part is one unit."""
        ids = [row["window_id"] for row in results]
        assert {row["window_id"] for row in continuations} <= set(ids), "a continuation of a window of another part"
        self._write_files(self._next_number, results, continuations)
        self._write_list()
        self.finished.update(ids)
        self._next_number += 1

    def keys_of(self, table: pq.ParquetFile) -> Iterator[Keys]:
        return keys_of_file(table, are_places=self._are_places)

    def is_due(self, rows: int, *, least: int) -> bool:
        """Whether so many rows should be a part. Long runs write longer ones: all of them are read to resume, so ten
        million windows should be some thousand files."""
        return rows >= least and rows >= min(MOST_TIMES_LEAST * least, len(self.finished) // PARTS_OF_LEAST)

    def restore(self) -> None:
        """The rows of the finished tables are a part again, so that the run can go on from them."""
        make_folder(self._folder.parts, inside=self._folder.path)
        self._write_files(0, [], [])
        part = self._folder.part(1)
        if self._continuations is not None:
            rows = _rows(self._folder.continuations)
            write_batches(part.continuations, rows, self._continuations, run_id=self._run_id)
        write_batches(part.results, _rows(self._folder.results), self._schema, run_id=self._run_id)
        self._write_list()
        self._next_number = 2

    def merge(self, order: Order | None) -> list[Path]:
        """Write the finished tables, windows in the given order (None: as written), and tell where they are.

        Raises a RunError, and changes nothing, unless the finished windows are exactly those of `order`.
        """
        parts = [self._folder.part(number) for number in self._folder.part_numbers()]
        result_files = [part.results for part in parts]
        plan = MergePlan(result_files, order)
        merge_parts(plan, result_files, self._folder.results, schema=arrow_schema(self._schema))
        if self._continuations is not None:
            files = [part.continuations for part in parts]
            merge_parts(plan, files, self._folder.continuations, schema=arrow_schema(self._continuations))
            return [self._folder.results, self._folder.continuations]
        return [self._folder.results]

    def _take_over_part(self, part: Part, *, is_listed: bool) -> Iterable[Keys]:
        """The windows of a part; none, and no file, where it is not whole."""
        results = self._whole(part.results)
        continuations = None if self._continuations is None else self._whole(part.continuations)
        if results is None or (continuations is None and self._continuations is not None):
            # A continuations file alone is a write that was interrupted half-way, unless the part was whole before.
            if is_listed or part.results.exists():
                self.dropped.append(part.results.name)
            self._folder.remove_part(part.number)
            return ()
        _require_columns(self._folder.path, results.schema_arrow, self._schema)
        if continuations is not None and self._continuations is not None:
            _require_columns(self._folder.path, continuations.schema_arrow, self._continuations)
        self._next_number = part.number + 1
        return self.keys_of(results)

    def _listed(self) -> frozenset[int]:
        try:
            listed = read_part_list(self._folder.part_list, run_id=self._run_id)
        except DamageError:
            # It is written anew; only a part that is missing as well is not noticed.
            return frozenset()
        return frozenset() if listed is None else frozenset(listed.numbers)

    def _write_list(self) -> None:
        numbers = self._folder.part_numbers()
        content = {"run_id": self._run_id, "keeps_continuations": self._continuations is not None, "parts": numbers}
        write_sealed_json(self._folder.part_list, content)

    def _whole(self, path: Path) -> pq.ParquetFile | None:
        try:
            return open_table(path, run_id=self._run_id)
        except (DamageError, FileNotFoundError):
            return None

    def _write_files(self, number: int, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        part = self._folder.part(number)
        if self._continuations is not None:
            write_table(part.continuations, continuations, self._continuations, run_id=self._run_id)
        else:
            assert not continuations, "this run keeps no continuations"
        write_table(part.results, results, self._schema, run_id=self._run_id)


class PartList(NamedTuple):
    """What parts.json says."""

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


def _rows(path: Path) -> Iterator[list[Row]]:
    with open_parquet(path) as file:
        for batch in file.iter_batches():
            yield batch.to_pylist()


def _require_columns(folder: Path, stored: pa.Schema, schema: Schema) -> None:
    now = arrow_schema(schema)
    if stored.equals(now):
        return
    changed = sorted({field.name for field in set(stored) ^ set(now)}) or ["their order"]
    raise RunError(
        f"{folder} holds a run with other columns ({', '.join(changed)}); "
        "choose another folder with --out, or start over with --fresh."
    )
