"""Is every file of a run the one that was written? Readers ask this once, before they believe a number."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from byrote.errors import RunError
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS
from byrote.store.files import damaged
from byrote.store.folder import Part, RunFolder
from byrote.store.identity import RunIdentity, read_identity
from byrote.store.journal import read_records
from byrote.store.manifest import check_files, read_manifest
from byrote.store.parts import read_part_list
from byrote.store.tables import arrow_schema, check_table, open_parquet, stored_rows

RESUME = "run the same command again to measure its windows anew"


class Verified(NamedTuple):
    """A run whose files were checked. `manifest` is None when it is unfinished."""

    folder: RunFolder
    identity: RunIdentity
    manifest: dict[str, Any] | None
    parts: tuple[Part, ...]
    """Of an unfinished run: the parts that count."""
    keeps_continuations: bool
    """Of an unfinished run: whether its parts have continuations."""
    checked: tuple[str, ...]
    """One line a file: its name and what it is known by."""


def verify_run(path: str | Path) -> Verified:
    """Check every file of the run at `path`; a RunError names the first that is not as it was written."""
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise RunError(f"{path} is not a folder; give the folder that was --out of a run.")
    identity = read_identity(folder.identity)
    if identity is None:
        raise RunError(
            f"{path} holds no byrote run (no identity.json of one); give the folder that was --out of a run."
        )
    manifest = read_manifest(folder.manifest)
    if manifest is not None:
        check_files(folder.manifest, manifest, identity, known=folder.tables)
        files = manifest["files"].items()
        listed = (f"{name}: {bound['bytes']:,} bytes, sha256 {bound['sha256']}" for name, bound in files)
        return Verified(folder, identity, manifest, (), False, ("manifest.json: sealed", *listed))
    try:
        unfinished = _verify_unfinished(folder, identity)
    except (FileNotFoundError, RunError) as error:
        # Parts go when a run is completed: some may have been gone before they were read.
        if folder.manifest.exists():
            return verify_run(path)
        if isinstance(error, RunError):
            raise
        raise RunError(f"{path} was completed while it was read; read it again.") from error
    return verify_run(path) if folder.manifest.exists() else unfinished


def _verify_unfinished(folder: RunFolder, identity: RunIdentity) -> Verified:
    if folder.has_lost_its_manifest:
        raise folder.lost_manifest()
    # Before the parts are looked for: those that are written meanwhile are not in it.
    listed = read_part_list(folder.part_list, run_id=identity.run_id)
    numbers = folder.part_numbers()
    if listed is None and any(numbers):
        raise damaged(folder.part_list, "it is missing")
    keeps = folder.part(0).continuations.exists() if listed is None else listed.keeps_continuations
    parts = tuple(part for part in map(folder.part, numbers) if all(file.exists() for file in _files(part, keeps)))
    whole = {part.number for part in parts}
    for number in () if listed is None else listed.numbers:
        if number not in whole:
            missing = next(file for file in _files(folder.part(number), keeps) if not file.exists())
            raise damaged(missing, "it is missing", advice=RESUME)
    tables = [file for part in parts for file in _files(part, keeps)]
    sealed = [folder.identity] if listed is None else [folder.identity, folder.part_list]
    lines = (*(f"{file.name}: sealed" for file in sealed), *_check_tables(folder, identity, tables))
    return Verified(folder, identity, None, parts, keeps, lines)


def _files(part: Part, keeps_continuations: bool) -> tuple[Path, ...]:
    """A part counts when all of these are there: one that is being written has its continuations only."""
    return (part.results, part.continuations) if keeps_continuations else (part.results,)


def _check_tables(folder: RunFolder, identity: RunIdentity, files: list[Path]) -> Iterator[str]:
    single = [file for file in (folder.texts,) if file.exists()]
    for file in [*files, *folder.block_files(), *single]:
        rows = check_table(file, run_id=identity.run_id)
        yield f"{file.relative_to(folder.path).as_posix()}: sealed, {rows:,} rows"
    if folder.answers.exists():
        records = sum(1 for _ in read_records(folder.answers, identity.run_id))
        yield f"{folder.answers.name}: {records:,} whole records, each bound to the one before"


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
        return f"{path} is a complete {kind} run, and such a run has no table of rows; see it with: byrote show {path}."
    return f"{path} holds no results yet ({kind}, unfinished); run its command again."


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except FileNotFoundError as error:
        raise RunError("The run was completed while it was read; read it again.") from error


def _scan(files: tuple[Path, ...]) -> pl.LazyFrame:
    # glob=False: a folder name may hold brackets or stars. Absolute: one with a colon is taken for a URI.
    return pl.scan_parquet([file.absolute() for file in files], glob=False, hive_partitioning=False)


UNKNOWN = "–"
HASH_SHOWN = 8
LONG_DIGEST = re.compile(r"(-[0-9a-f]{8})[0-9a-f]{8,}$")


class ListedRun(NamedTuple):
    name: str
    """Relative to the folder that was listed."""
    kind: str
    model: str
    """Its name; of an unfinished run, which may know it by its hash alone, the beginning of that."""
    text: str
    date: str
    state: str
    """complete, unfinished or unreadable."""
    rows: int | None
    """None for kinds without rows."""
    reason: str | None = None
    """Why it is unreadable."""


def list_runs(place: Path) -> list[ListedRun]:
    """Every run in `place` and below it, by name; a run inside another run's folder is listed too."""
    if not place.is_dir():
        raise RunError(f"{place} is not a folder; give one that holds runs.")
    return [_listed(folder, place) for folder in sorted(_run_folders(place))]


def _run_folders(place: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(place):
        below[:] = [name for name in below if not name.startswith(".")]
        if "identity.json" in names:
            yield Path(folder)


def _listed(path: Path, place: Path) -> ListedRun:
    folder, name = RunFolder(path), path.relative_to(place).as_posix()
    try:
        identity, manifest = read_identity(folder.identity), read_manifest(folder.manifest)
        if manifest is None and folder.has_lost_its_manifest:
            raise folder.lost_manifest()
    except RunError as error:
        return ListedRun(name, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, "unreadable", None, str(error))
    assert identity is not None
    known: Mapping[str, Any] = identity.values if manifest is None else manifest
    date = UNKNOWN if manifest is None else str(manifest.get("written_at", UNKNOWN))[:10]
    state = "unfinished" if manifest is None else "complete"
    return ListedRun(name, identity.kind, _model(known), _text(known), date, state, _rows(folder))


def _model(known: Mapping[str, Any]) -> str:
    model = known.get("model") or {}
    name = model.get("name") or model.get("model")
    if name is None:
        return f"{model['weights_hash'][:HASH_SHOWN]}…" if model.get("weights_hash") else UNKNOWN
    return shown_name(str(name))


def shown_name(name: str) -> str:
    """A model's name as a reader would say it: the last folder of a path, long digests cut, a hub id unchanged."""
    return folder_name(name) if name.startswith(("/", ".", "~")) else name


def folder_name(path: str) -> str:
    """The last folder of a path, long digests cut."""
    return LONG_DIGEST.sub(r"\1", Path(path).name)


def _text(known: Mapping[str, Any]) -> str:
    texts = known.get("texts")
    names = list(texts) if isinstance(texts, Mapping) else []
    if not names:
        return UNKNOWN
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _rows(folder: RunFolder) -> int | None:
    files = [folder.results] if folder.results.exists() else [folder.part(n).results for n in folder.part_numbers()]
    try:
        return sum(stored_rows(file) for file in files if file.exists()) if files else None
    except (OSError, pa.ArrowException):
        return None
