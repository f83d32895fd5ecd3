"""Reading runs: check every file, then give the tables; and list the runs of a folder."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from byrote.errors import RunError
from byrote.store.columns import COST_COLUMNS, WINDOW_COLUMNS
from byrote.store.files import TEMPORARY, WRITTEN, damaged, read_sealed_json, require_bound
from byrote.store.folder import RunFolder
from byrote.store.journal import read_records
from byrote.store.manifest import RunIdentity, check_files, read_identity, read_manifest
from byrote.store.parts import read_part_list
from byrote.store.tables import arrow_schema, open_parquet, open_table, stored_rows

WRITE_AGAIN = "write it again with byrote report or byrote export"
RESUME = "run the same command to measure its windows again"
UNKNOWN = "–"
HASH_SHOWN = 8
LONG_DIGEST = re.compile(r"(-[0-9a-f]{8})[0-9a-f]{8,}$")


@dataclass(frozen=True)
class StoredRun:
    """A run whose files were checked. Frames are read on first use; `scan_results` gives them lazily."""

    path: Path
    kind: str
    run_id: str
    identity: dict[str, Any]
    manifest: dict[str, Any] | None
    """None when the run is unfinished."""
    result_files: tuple[Path, ...]
    """Of an unfinished run its parts; empty for kinds of run without rows."""
    continuation_files: tuple[Path, ...] | None
    """None when the run keeps no continuations."""
    texts_file: Path | None
    """None when the run keeps no texts."""
    checked: tuple[str, ...]
    """One line per file: its name, and its hash or seal."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What is known of an unfinished run beside its identity: `model`, its name, and `windows`, how many it has."""
    mark: str | None = None
    """Of an unfinished run: the key of its random order up to which all windows are finished, where that is known."""

    @property
    def is_complete(self) -> bool:
        return self.manifest is not None

    @cached_property
    def results(self) -> pl.DataFrame:
        return _collected(self.scan_results())

    @cached_property
    def continuations(self) -> pl.DataFrame | None:
        return None if self.continuation_files is None else _collected(_scan(self.continuation_files))

    @cached_property
    def texts(self) -> pl.DataFrame | None:
        return None if self.texts_file is None else _collected(_scan((self.texts_file,)))

    def scan_results(self) -> pl.LazyFrame:
        return _scan(self.result_files)


def read_run(path: str | Path) -> StoredRun:
    """The run at `path`. Of an unfinished one, the windows that are finished; RunError when it is no run with rows."""
    run = verify_run(path)
    if not run.result_files:
        if not run.is_complete:
            raise RunError(f"{path} holds no results yet ({run.kind}, unfinished); run its command again.")
        raise RunError(
            f"{path} is a complete {run.kind} run, and such a run has no table of rows; "
            f"see it with: byrote show {path}."
        )
    for file in run.result_files:
        _require_types(file)
    return run


def read_finished(path: str | Path, kind: str) -> tuple[StoredRun, dict[str, Any]]:
    """The finished run of this kind at `path`, and its manifest; anything else is a RunError."""
    run = read_run(path)
    if run.kind != kind:
        raise RunError(f"{path} holds a {run.kind} run, not a {kind} run; byrote show shows every kind.")
    if run.manifest is None:
        raise RunError(f"{path} is not finished; run its command again.")
    return run, run.manifest


def verify_run(path: str | Path) -> StoredRun:
    """Check every file of the run at `path`; a RunError names the first that is not as it was written."""
    folder = RunFolder(Path(path))
    identity = folder.require_identity()
    manifest = read_manifest(folder.manifest)
    if manifest is not None:
        return _verify_complete(folder, identity, manifest)
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


def check_written(path: Path, *, known: Iterable[str]) -> tuple[list[str], list[str]]:
    """Check the reports and exports in the run folder at `path`: one line per file that is as it was written, and the
    names of files whose hash was never noted. `known` are the names of the run's own files. A RunError names the first
    that was changed."""
    lines, others, own = [], [], {*known, "identity.json", "manifest.json", ".lock", ".requests"}
    for place, below, names in os.walk(path):
        folder = Path(place)
        below[:] = sorted(name for name in below if not (folder / name / "identity.json").exists())
        noted = (read_sealed_json(folder / WRITTEN, advice=WRITE_AGAIN) or {}).get("files", {})
        for name, entry in noted.items():
            if (folder / name).exists():
                require_bound(folder, name, entry, advice=WRITE_AGAIN)
                shown = (folder / name).relative_to(path).as_posix()
                lines.append(f"{shown}: {entry['bytes']:,} bytes, sha256 {entry['sha256']}")
                own.add(shown)
        found = ((folder / name).relative_to(path).as_posix() for name in sorted(names) if name != WRITTEN)
        others += [name for name in found if not TEMPORARY.fullmatch(Path(name).name)]
    return lines, [name for name in others if name not in own]


def _verify_complete(folder: RunFolder, identity: RunIdentity, manifest: dict[str, Any]) -> StoredRun:
    check_files(folder.manifest, manifest, identity, known=folder.tables)
    files = manifest["files"]
    bound = [f"{name}: {entry['bytes']:,} bytes, sha256 {entry['sha256']}" for name, entry in files.items()]
    return StoredRun(
        folder.path,
        identity.kind,
        identity.run_id,
        identity.values,
        manifest,
        result_files=(folder.results,) if folder.results.name in files else (),
        continuation_files=(folder.continuations,) if folder.continuations.name in files else None,
        texts_file=folder.texts if folder.texts.name in files else None,
        checked=("manifest.json: sealed", *bound),
    )


def _verify_unfinished(folder: RunFolder, identity: RunIdentity) -> StoredRun:
    folder.refuse_lost_manifest()
    # Before the parts are looked for: those that are written meanwhile are not in it.
    listed = read_part_list(folder.part_list, run_id=identity.run_id)
    numbers = folder.part_numbers()
    if listed is None and numbers:
        raise damaged(folder.part_list, "it is missing")
    keeps_continuations = listed is not None and listed["keeps_continuations"]

    def files_of(number: int) -> list[Path]:
        part = folder.part(number)
        return [part.results, part.continuations] if keeps_continuations else [part.results]

    for number in () if listed is None else listed["parts"]:
        for file in files_of(number):
            if not file.exists():
                raise damaged(file, "it is missing", advice=RESUME)
    # One that is being written has its continuations only.
    numbers = [number for number in numbers if all(file.exists() for file in files_of(number))]
    texts = (folder.texts,) if folder.texts.exists() else ()
    checked = [f"{file.name}: sealed" for file in (folder.identity, folder.part_list) if file.exists()]
    for file in (*(file for number in numbers for file in files_of(number)), *folder.block_files(), *texts):
        with open_table(file, run_id=identity.run_id) as table:
            checked.append(f"{file.relative_to(folder.path).as_posix()}: sealed, {table.metadata.num_rows:,} rows")
    if folder.answers.exists():
        records = sum(1 for _ in read_records(folder.answers, identity.run_id))
        checked.append(f"{folder.answers.name}: {records:,} whole records, each bound to the one before")
    return StoredRun(
        folder.path,
        identity.kind,
        identity.run_id,
        identity.values,
        None,
        result_files=tuple(folder.part(number).results for number in numbers),
        continuation_files=tuple(folder.part(n).continuations for n in numbers) if keeps_continuations else None,
        texts_file=folder.texts if texts else None,
        checked=tuple(checked),
        about=identity.about,
        mark=None if listed is None else listed.get("mark"),
    )


def _require_types(file: Path) -> None:
    """Hashes show change, not authorship: the columns that every kind of run may have are of their declared types."""
    with open_parquet(file) as table:
        stored = table.schema_arrow
    for column in arrow_schema((*WINDOW_COLUMNS, *COST_COLUMNS)):
        name, declared = column.name, column.type
        if name in stored.names and (found := stored.field(name).type) != declared:
            raise RunError(f"{file} was not written by byrote: its column {name} holds {found}, not {declared}.")


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except FileNotFoundError as error:
        raise RunError("The run was completed while it was read; read it again.") from error


def _scan(files: tuple[Path, ...]) -> pl.LazyFrame:
    # glob=False: a folder name may hold brackets or stars. Absolute: one with a colon is taken for a URI.
    return pl.scan_parquet([file.absolute() for file in files], glob=False, hive_partitioning=False)


class ListedRun(NamedTuple):
    name: str
    """Relative to the folder that was listed."""
    kind: str
    model: str
    """Its name; of an unfinished run, of which the hash may be all that is stored, the beginning of that."""
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
    found = []
    for folder, below, names in os.walk(place):
        below[:] = [name for name in below if not name.startswith(".")]
        if "identity.json" in names:
            found.append(Path(folder))
    return [_listed(RunFolder(path), path.relative_to(place).as_posix()) for path in sorted(found)]


def _listed(folder: RunFolder, name: str) -> ListedRun:
    try:
        identity, manifest = read_identity(folder.identity), read_manifest(folder.manifest)
        folder.refuse_lost_manifest()
    except RunError as error:
        return ListedRun(name, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, "unreadable", None, str(error))
    assert identity is not None
    known: Mapping[str, Any] = {**identity.values, **identity.about} if manifest is None else manifest
    date = UNKNOWN if manifest is None else str(manifest.get("written_at", UNKNOWN))[:10]
    state = "unfinished" if manifest is None else "complete"
    return ListedRun(name, identity.kind, _model(known), _text(known), date, state, _rows(folder))


def _model(known: Mapping[str, Any]) -> str:
    model = known.get("model") or {}
    if isinstance(model, str):
        return shown_name(model)
    if name := model.get("name"):
        return shown_name(str(name))
    return f"{model['weights_hash'][:HASH_SHOWN]}…" if model.get("weights_hash") else UNKNOWN


def shown_name(name: str) -> str:
    """A model's name for display: the last folder of a path, long digests cut, a hub id unchanged."""
    return LONG_DIGEST.sub(r"\1", Path(name).name) if name.startswith(("/", ".", "~")) else name


def _text(known: Mapping[str, Any]) -> str:
    texts = known.get("texts")
    if not isinstance(texts, Mapping) or not texts:
        return UNKNOWN
    first, *others = texts
    # The identity of an unfinished run names texts with their side.
    name = str(first).removeprefix("target:").removeprefix("control:")
    return f"{name} and {len(others)} more" if others else name


def _rows(folder: RunFolder) -> int | None:
    files = [folder.results] if folder.results.exists() else [folder.part(n).results for n in folder.part_numbers()]
    try:
        return sum(stored_rows(file) for file in files if file.exists()) if files else None
    except (OSError, pa.ArrowException):
        return None
