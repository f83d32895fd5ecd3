"""Reading runs, complete or still in parts. Reading never changes a folder and needs no lock.

Every file is verified once, when the run is opened: a number that is shown was written by the run that is named.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from rote.errors import RunError
from rote.store.columns import COST_COLUMNS, WINDOW_COLUMNS
from rote.store.parquet_tables import open_parquet
from rote.store.schema import arrow_schema
from rote.store.verify import verify_run


@dataclass(frozen=True)
class StoredRun:
    """A run as it is on the disk. Frames are read when first asked for; `scan_…` give them lazily."""

    path: Path
    kind: str
    run_id: str
    identity: dict[str, Any]
    manifest: dict[str, Any] | None
    result_files: tuple[Path, ...]
    continuation_files: tuple[Path, ...] | None
    """None when the run keeps no continuations."""
    texts_file: Path | None
    """None when the run keeps no texts."""

    @property
    def is_complete(self) -> bool:
        return self.manifest is not None

    @cached_property
    def results(self) -> pl.DataFrame:
        return _collected(self.scan_results())

    @cached_property
    def continuations(self) -> pl.DataFrame | None:
        frame = self.scan_continuations()
        return None if frame is None else _collected(frame)

    @cached_property
    def texts(self) -> pl.DataFrame | None:
        return None if self.texts_file is None else _collected(_scan((self.texts_file,)))

    def scan_results(self) -> pl.LazyFrame:
        return _scan(self.result_files)

    def scan_continuations(self) -> pl.LazyFrame | None:
        return None if self.continuation_files is None else _scan(self.continuation_files)


def read_run(path: str | Path) -> StoredRun:
    """The run at `path`. Of an unfinished one, the windows that are finished; RunError when it is no run with rows."""
    folder, identity, manifest, parts, keeps_continuations, _ = verify_run(path)
    results = [part.results for part in parts]
    continuations = [part.continuations for part in parts] if keeps_continuations else None
    has_texts = folder.texts.exists()
    if manifest is not None:
        listed = manifest["files"]
        results = [folder.results] if folder.results.name in listed else []
        continuations = [folder.continuations] if folder.continuations.name in listed else None
        has_texts = folder.texts.name in listed
    if not results:
        raise RunError(_without_rows(path, identity.kind, is_complete=manifest is not None))
    for file in results:
        _require_kinds(file)
    return StoredRun(
        path=folder.path,
        kind=identity.kind,
        run_id=identity.run_id,
        identity=identity.values,
        manifest=manifest,
        result_files=tuple(results),
        continuation_files=None if continuations is None else tuple(continuations),
        texts_file=folder.texts if has_texts else None,
    )


def _require_kinds(file: Path) -> None:
    """The columns that every kind of run may have hold what they are declared to: sums over them are numbers."""
    kinds = arrow_schema((*WINDOW_COLUMNS, *COST_COLUMNS))
    with open_parquet(file) as table:
        stored = table.schema_arrow
    for name in set(kinds.names) & set(stored.names):
        found, declared = stored.field(name).type, kinds.field(name).type
        if found != declared:
            raise RunError(f"{file} was not written by rote: its column {name} holds {found}, not {declared}.")


def _without_rows(path: str | Path, kind: str, *, is_complete: bool) -> str:
    if is_complete:
        return f"{path} is a complete {kind} run, and such a run has no table of rows; see it with: rote show {path}."
    return f"{path} holds no results yet ({kind}, unfinished); run its command again."


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except FileNotFoundError as error:
        raise RunError("The run was completed while it was read; read it again.") from error


def _scan(files: tuple[Path, ...]) -> pl.LazyFrame:
    # glob=False: a folder name may hold brackets or stars. Absolute: one with a colon is taken for a URI.
    return pl.scan_parquet([file.absolute() for file in files], glob=False, hive_partitioning=False)
