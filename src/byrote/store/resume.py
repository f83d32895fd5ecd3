"""The one way to write a run: open or resume its folder, add rows, complete it.

with RunSession.open(path, kind="scan", identity=identity, schema=columns) as run:
    for row in measured:
        run.add(row)
    run.complete({"config": config, "totals": totals})
"""

import json
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self
from weakref import WeakSet

from byrote.errors import DamageError, RunError, StorageError
from byrote.store import manifest
from byrote.store.columns import Schema
from byrote.store.files import make_folder, open_locked, sync_folder
from byrote.store.folder import RunFolder
from byrote.store.parts import FinishedWindows, Order, Parts
from byrote.store.tables import Row, open_parquet, open_table, read_table, stored_ids, write_table, write_texts

PART_ROWS = 256
PART_SECONDS = 30.0
OPEN_SESSIONS: "WeakSet[RunSession]" = WeakSet()
"""Sessions of this process: they are flushed before it is ended at once."""
CHOOSE_ANOTHER = "Choose another folder with --out, or start over with --fresh."
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""SIGALRM too: it ends a command that takes too long to stop."""


class RunSession:
    """Exclusive access to one run folder. Use as a context manager: leaving it writes the rows added so far, however
    it is left, and releases the lock.
    """

    def __init__(self, folder: RunFolder, *, part_rows: int) -> None:
        self._folder, self._part_rows = folder, part_rows
        self._lock: int | None = acquire_lock(folder.lock)
        self._identity: manifest.RunIdentity
        self._parts: Parts | None = None
        self._pending: dict[str, tuple[Row, Sequence[Row]]] = {}
        self._written_at = monotonic()
        self._bound = [folder.identity]
        self._has_failed = False
        self.is_complete = False

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        kind: str,
        identity: Mapping[str, Any],
        schema: Schema | None = None,
        continuations: Schema | None = None,
        fresh: bool = False,
        about: Mapping[str, Any] | None = None,
        part_rows: int = PART_ROWS,
        advice: str = CHOOSE_ANOTHER,
    ) -> Self:
        """Start the run at `path`, or resume it when it was made with the same identity and columns.

        With `schema` it has rows, with `continuations` a second table of rows that belong to windows. A part is
        written with the `part_rows`-th row (later in a long run), and with the first one PART_SECONDS after the last
        part. `fresh` starts over: it removes what byrote wrote. `about` is kept for readers of the unfinished run.
        `advice` ends the refusal of another identity.
        """
        folder = RunFolder(Path(path))
        folder.create()
        session = cls(folder, part_rows=part_rows)
        try:
            session._claim(manifest.RunIdentity.new(kind, identity, about or {}), fresh=fresh, advice=advice)
            if schema is not None:
                session._resume(schema, continuations)
        except BaseException as error:
            session.close()
            if isinstance(error, OSError):
                raise StorageError(f"Cannot prepare {path}: {error.strerror or error}; check the folder.") from error
            raise
        OPEN_SESSIONS.add(session)
        return session

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def run_id(self) -> str:
        return self._identity.run_id

    @property
    def answers(self) -> Path:
        """Where the answers of a served model are kept."""
        return self._folder.answers

    @property
    def finished(self) -> FinishedWindows:
        """The windows whose rows are safely on the disk."""
        return self._own_parts.finished

    def finished_ids(self) -> set[str]:
        """The ids of `finished`, read from the disk."""
        parts = [self._folder.part(number).results for number in self._folder.part_numbers()]
        tables = [self._folder.results] if self.is_complete else parts
        return {window_id for table in tables if table.exists() for window_id in stored_ids(table).to_pylist()}

    def add(self, row: Row, continuations: Sequence[Row] = ()) -> None:
        """A finished window. Its row is on the disk with the next part, at the latest when the session is left."""
        self._require_usable()
        window_id = row["window_id"]
        if window_id in self.finished or window_id in self._pending:
            raise RunError(f"Window {window_id} was measured twice; please report this.")
        self._pending[window_id] = row, continuations
        is_due = self._own_parts.is_due(len(self._pending), least=self._part_rows)
        if is_due or monotonic() - self._written_at >= PART_SECONDS:
            self.flush()

    def sampled_to(self, mark: bytes | None) -> None:
        """Windows up to the key `mark` of the run's random order are all added, or about to be."""
        if mark is not None:
            self._own_parts.mark = max(mark.hex(), self._own_parts.mark or "")

    def flush(self) -> None:
        """Write the rows added since the last part; a signal that comes meanwhile takes effect after that."""
        if not self._pending:
            return
        self._require_usable()
        with signals_deferred():
            # Until both files are known to be on the disk, only opening the run again shows what is there.
            self._has_failed = True
            rows = [row for row, _ in self._pending.values()]
            self._own_parts.write(rows, [row for _, further in self._pending.values() for row in further])
            self._pending.clear()
            self._has_failed = False
            self._written_at = monotonic()

    def write_block(self, name: str, rows: Iterable[Row], schema: Schema) -> None:
        """Keep intermediate rows until the run is complete; afterwards `read_block` gives them."""
        make_folder(self._folder.blocks, inside=self.path)
        write_table(self._folder.block(name), rows, schema, run_id=self.run_id)

    def read_block(self, name: str) -> list[dict[str, Any]] | None:
        """The rows of a block; None when it was not written, or not whole."""
        with suppress(FileNotFoundError, DamageError):
            return list(read_table(self._folder.block(name), run_id=self.run_id).to_pylist())
        return None

    def write_texts(self, documents: Iterable[Any]) -> None:
        """Write texts.parquet once; a resumed run finds it there and whole, or writes it again."""
        try:
            with open_table(self._folder.texts, run_id=self.run_id):
                pass
        except (FileNotFoundError, DamageError):
            write_texts(self._folder.texts, documents, run_id=self.run_id)
        self.bind(self._folder.texts)

    def bind(self, *files: Path) -> None:
        """Further files of the run, which the manifest will list by their hashes."""
        self._bound += files

    def reopen(self) -> None:
        """A complete run is unfinished from here on, until it is completed again. Its rows stay."""
        if self._parts is not None:
            self._parts.restore()
        self._folder.manifest.unlink(missing_ok=True)
        sync_folder(self.path)
        self.is_complete = False

    def complete(self, sections: Mapping[str, Any], *, order: Order | None = None) -> None:
        """Merge the parts in the given order of windows (None: as written), then write the manifest with `sections`.

        Raises a RunError, and changes nothing, unless the finished windows are exactly those of `order`.
        """
        self._require_usable()
        self.flush()
        tables = [] if self._parts is None else self._parts.merge(order)
        try:
            manifest.write_manifest(self._folder.manifest, sections, self._identity, [*self._bound, *tables])
        except OSError as error:
            raise StorageError(f"Cannot complete {self.path}: {error.strerror or error}; run it again.") from error
        self.is_complete = True
        # Leftovers would be removed by the next open.
        with suppress(OSError):
            self._folder.remove_work()

    def complete_with(self, rows: Sequence[Row], sections: Mapping[str, Any]) -> None:
        """Add those of the rows that an earlier session has not, and complete the run in their order."""
        for row in rows:
            if row["window_id"] not in self.finished:
                self.add(row)
        self.complete(sections, order=[row["window_id"] for row in rows])

    def close(self) -> None:
        OPEN_SESSIONS.discard(self)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._has_failed:
                self.flush()
        finally:
            self.close()

    def _claim(self, now: manifest.RunIdentity, *, fresh: bool, advice: str) -> None:
        """Make the folder this run's, or find that it is already."""
        folder = self._folder
        # Again, now under the lock: another process may have put something here since.
        folder.refuse_foreign()
        stored = manifest.read_identity(folder.identity)
        if stored is not None and not fresh:
            manifest.require_same_identity(folder.path, stored, now, advice=advice)
        if fresh:
            folder.clear()
        self._identity = now if stored is None or fresh else stored
        folder.remove_temporaries()
        if self._identity is now:
            manifest.write_identity(folder.identity, now)
        written = manifest.read_manifest(folder.manifest)
        if written is not None:
            manifest.check_files(folder.manifest, written, self._identity, known=folder.tables)
            folder.remove_work()
            self.is_complete = True

    def _resume(self, schema: Schema, continuations: Schema | None) -> None:
        self._parts = Parts(self._folder, self.run_id, schema, continuations)
        if self.is_complete:
            with open_parquet(self._folder.results) as table:
                self._parts.finished.add_table(table)
            return
        self._folder.refuse_lost_manifest()
        self._parts.resume()
        if self._parts.dropped:
            names = ", ".join(self._parts.dropped)
            warnings.warn(
                f"{self.path}: {names} was damaged or is missing; its windows are measured again.", stacklevel=4
            )

    @property
    def _own_parts(self) -> Parts:
        assert self._parts is not None, "this kind of run has no rows"
        return self._parts

    def _require_usable(self) -> None:
        if self._has_failed:
            raise StorageError(f"A write to {self.path} failed; run the same command again to continue from there.")
        if self.is_complete:
            raise RunError(f"{self.path} is complete; choose another folder with --out, or start over with --fresh.")


def acquire_lock(path: Path) -> int:
    """A descriptor of `path` that holds its lock until it is closed; a RunError names the process that has it.

    The file stays behind; only the kernel's lock on it counts.
    """
    try:
        descriptor = open_locked(path)
    except BlockingIOError as error:
        holder = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(path.read_bytes())
            holder = f"process {stored['pid']} on {stored['host']}"
        raise RunError(
            f"{path.parent} is in use by {holder}; wait for it or choose another folder with --out."
        ) from error
    except OSError as error:
        raise RunError(
            f"Cannot write into {path.parent}: {error.strerror}; choose another folder with --out."
        ) from error
    with suppress(OSError):  # on a full disk the holder has no name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
    return descriptor


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Signals that come inside are delivered right after. Outside the main thread none is delivered anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []

    before = {number: signal.signal(number, lambda came, _: deferred.append(came)) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: a handler that Python did not install and cannot put back.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for came in deferred:
            signal.raise_signal(came)
