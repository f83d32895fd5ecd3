"""The writer of a run: parts while it runs, one file when it is complete, the manifest last.

What is true at every moment, also right after a SIGKILL or a power cut:
- a part counts when both of its files are there and whole; the results file is written second;
- a window is in at most one part that counts;
- manifest.json is there only if results.parquet (and continuations.parquet) hold the complete run.
So opening a folder again needs no journal: it drops what is not whole and goes on.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import RunError, StorageError
from rote.store.atomic import atomic_file, write_json
from rote.store.columns import Schema
from rote.store.folder import Part, RunFolder, read_whole
from rote.store.identity import read_identity, require_same_identity, write_identity
from rote.store.lock import RunLock
from rote.store.merge import MergePlan, merge_parts, parquet_writer
from rote.store.schema import arrow_schema, table_of

Row = Mapping[str, Any]


class RunWriter:
    """Exclusive access to one run folder. Use as a context manager: leaving it releases the lock, nothing else."""

    def __init__(self, folder: RunFolder, lock: RunLock, *, schema: Schema, continuations: Schema | None) -> None:
        self._folder = folder
        self._lock = lock
        self._columns, self._continuation_columns = schema, continuations
        self._schema = arrow_schema(schema)
        self._finished: set[str] = set()
        self._next_number = 1
        self._has_failed = False
        self.discarded_parts: list[str] = []
        """Parts found cut or damaged on opening; their windows count as not finished."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        identity: Mapping[str, Any],
        schema: Schema,
        continuations: Schema | None = None,
        fresh: bool = False,
    ) -> Self:
        """Start the run at `path`, or resume it when it was made with the same identity and columns.

        With `continuations` it keeps a second table, of rows that belong to windows.
        `fresh` starts over: it removes the files rote wrote there, never those of others.
        """
        folder = RunFolder(Path(path))
        folder.create()
        writer = cls(folder, RunLock.acquire(folder.lock), schema=schema, continuations=continuations)
        try:
            writer._settle(identity, fresh=fresh)
        except OSError as error:
            writer.close()
            raise StorageError(f"Cannot prepare {path}: {error.strerror or error}; check the folder.") from error
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def is_complete(self) -> bool:
        return self._folder.is_complete

    def finished_ids(self) -> set[str]:
        """Ids of the windows whose rows are safely on the disk."""
        return set(self._finished)

    def write_part(self, results: Sequence[Row], continuations: Sequence[Row] = ()) -> None:
        """Afterwards these windows are finished, whatever happens next. All of them or none: a part is one unit."""
        if not results:
            return
        self._require_usable()
        ids = [row["window_id"] for row in results]
        self._require_new(ids)
        assert {row["window_id"] for row in continuations} <= set(ids), "a continuation of a window of another part"
        # Until both files are known to be on the disk, only opening the run again can tell what is there.
        self._has_failed = True
        self._write_part_files(self._next_number, results, continuations)
        self._has_failed = False
        self._finished.update(ids)
        self._next_number += 1

    def complete(self, manifest: Mapping[str, Any], *, order: Sequence[str] | None = None) -> None:
        """Merge the parts in the given order of window ids (None: as written), then write the manifest.

        Raises a RunError, and changes nothing, unless the finished windows are exactly those of `order`.
        """
        self._require_usable()
        parts = [self._folder.part(number) for number in self._folder.part_numbers()]
        result_files = [part.results for part in parts]
        plan = MergePlan(result_files, order)
        merge_parts(plan, result_files, self._folder.results, schema=self._schema)
        if self._continuation_columns is not None:
            files = [part.continuations for part in parts]
            merge_parts(plan, files, self._folder.continuations, schema=arrow_schema(self._continuation_columns))
        write_json(self._folder.manifest, manifest)
        # The run is complete from here on; leftovers would be removed by the next open.
        with suppress(OSError):
            self._folder.remove_parts()

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self, identity: Mapping[str, Any], *, fresh: bool) -> None:
        """Bring the folder into a state that this process can go on from, and learn what is finished."""
        folder = self._folder
        # Again, now under the lock: another process may have put something here since.
        folder.refuse_foreign()
        stored = read_identity(folder.identity)
        if stored is not None and not fresh:
            require_same_identity(folder.path, stored, identity)
        if fresh:
            folder.clear()
        if stored is None or fresh:
            write_identity(folder.identity, identity)
        folder.remove_temporaries()
        if folder.is_complete:
            folder.remove_parts()
            self._finished = set(_stored_ids(folder.results))
            return
        folder.parts.mkdir(exist_ok=True)
        for number in folder.part_numbers():
            self._take_over_part(number)
        if 0 not in folder.part_numbers():
            self._write_part_files(0, [], [])

    def _take_over_part(self, number: int) -> None:
        """Count the windows of a part that is whole; remove one that is not."""
        part = self._folder.part(number)
        results = read_whole(part.results)
        if number == 0 and results is not None:
            _require_same_columns(self._folder.path, results.schema, self._schema)
        if results is None or not results.schema.equals(self._schema) or not self._has_continuations(part):
            # A continuations file alone is a write that was interrupted half-way, not damage.
            if part.results.exists():
                self.discarded_parts.append(part.results.name)
            self._folder.remove_part(number)
            return
        self._finished.update(results.column("window_id").to_pylist())
        self._next_number = number + 1

    def _has_continuations(self, part: Part) -> bool:
        if self._continuation_columns is None:
            return True
        continuations = read_whole(part.continuations)
        return continuations is not None and bool(continuations.schema.equals(arrow_schema(self._continuation_columns)))

    def _write_part_files(self, number: int, results: Sequence[Row], continuations: Sequence[Row]) -> None:
        part = self._folder.part(number)
        if self._continuation_columns is not None:
            _write_rows(part.continuations, continuations, self._continuation_columns)
        else:
            assert not continuations, "this run keeps no continuations"
        _write_rows(part.results, results, self._columns)

    def _require_usable(self) -> None:
        if self._has_failed:
            raise StorageError(f"A write to {self.path} failed; run the same command again to go on from there.")
        if self.is_complete:
            raise RunError(f"{self.path} is complete; choose another folder with --out, or start over with --fresh.")

    def _require_new(self, ids: Sequence[str]) -> None:
        repeated = self._finished.intersection(ids) | _repeated(ids)
        if repeated:
            raise RunError(f"Window {min(repeated)} was measured twice ({len(repeated)} such); please report this.")


def _write_rows(path: Path, rows: Sequence[Row], columns: Schema) -> None:
    table = table_of(rows, columns)
    with atomic_file(path) as file, parquet_writer(file, table.schema) as writer:
        writer.write_table(table)


def _repeated(ids: Iterable[str]) -> set[str]:
    return {window_id for window_id, count in Counter(ids).items() if count > 1}


def _stored_ids(path: Path) -> Collection[str]:
    ids: list[str] = pq.read_table(path, columns=["window_id"]).column("window_id").to_pylist()
    return ids


def _require_same_columns(folder: Path, stored: pa.Schema, now: pa.Schema) -> None:
    if stored.equals(now):
        return
    changed = sorted({field.name for field in set(stored) ^ set(now)}) or ["their order"]
    raise RunError(
        f"{folder} holds a run with other columns ({', '.join(changed)}); "
        "choose another folder with --out, or start over with --fresh."
    )
