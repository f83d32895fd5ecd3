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


class Verified(NamedTuple):
    """A run whose files were checked. `manifest` is None when it is unfinished."""

    folder: RunFolder
    identity: RunIdentity
    manifest: dict[str, Any] | None
    parts: tuple[Part, ...]
    """Of an unfinished run: the parts that count."""
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
        return Verified(folder, identity, manifest, (), ("manifest.json: sealed", *listed))
    try:
        parts = tuple(part for part in map(folder.part, folder.part_numbers()) if _counts(folder, part))
        lines = ("identity.json: sealed", *_check_tables(folder, identity, parts))
    except FileNotFoundError as error:
        raise RunError(f"{path} was completed while it was read; read it again.") from error
    # Parts go when a run is completed: some may have been gone before they were listed.
    return verify_run(path) if folder.manifest.exists() else Verified(folder, identity, None, parts, lines)


def keeps_continuations(folder: RunFolder) -> bool:
    """Whether an unfinished run does: its part 0, written when it starts, says so by its files."""
    return folder.part(0).continuations.exists()


def _counts(folder: RunFolder, part: Part) -> bool:
    """A part that is being written has its continuations only, and none of its windows counts yet."""
    return part.results.exists() and (part.continuations.exists() or not keeps_continuations(folder))


def _check_tables(folder: RunFolder, identity: RunIdentity, parts: tuple[Part, ...]) -> Iterator[str]:
    has_second = keeps_continuations(folder)
    files = [file for part in parts for file in ((part.results, part.continuations) if has_second else (part.results,))]
    single = [file for file in (folder.texts, folder.alternates) if file.exists()]
    for file in [*files, *folder.block_files(), *single]:
        rows = check_table(file, run_id=identity.run_id)
        yield f"{file.relative_to(folder.path).as_posix()}: sealed, {rows:,} rows"
    if folder.answers.exists():
        records = check_answers(folder.answers, identity.run_id)
        yield f"{folder.answers.name}: {records:,} whole records, each bound to the one before"
