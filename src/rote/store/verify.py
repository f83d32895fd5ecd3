"""Is every file of a run the one that was written? Readers ask this once, before they believe a number."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rote.errors import RunError
from rote.store.answers import check_answers
from rote.store.folder import Part, RunFolder
from rote.store.identity import RunIdentity, read_identity
from rote.store.manifest import check_files, read_manifest
from rote.store.parquet_tables import check_table
from rote.store.parts import read_part_list
from rote.store.seal import damaged

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
        raise RunError(f"{path} holds no rote run (no identity.json of one); give the folder that was --out of a run.")
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
        records = check_answers(folder.answers, identity.run_id)
        yield f"{folder.answers.name}: {records:,} whole records, each bound to the one before"
