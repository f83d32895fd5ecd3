"""Reading runs, complete or still in parts. Reading never changes a folder and needs no lock."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import RunError
from rote.store.folder import RunFolder
from rote.store.identity import read_identity
from rote.store.manifest import read_manifest


@dataclass(frozen=True)
class StoredRun:
    """A run as it is on the disk. Frames are read when first asked for; `scan_…` give them lazily."""

    path: Path
    identity: dict[str, Any]
    manifest: dict[str, Any] | None
    result_files: tuple[Path, ...]
    continuation_files: tuple[Path, ...] | None
    """None when the run keeps no continuations."""

    @property
    def is_complete(self) -> bool:
        return self.manifest is not None

    @cached_property
    def results(self) -> pl.DataFrame:
        return self.scan_results().collect()

    @cached_property
    def continuations(self) -> pl.DataFrame | None:
        frame = self.scan_continuations()
        return None if frame is None else frame.collect()

    def scan_results(self) -> pl.LazyFrame:
        return _scan(self.result_files)

    def scan_continuations(self) -> pl.LazyFrame | None:
        return None if self.continuation_files is None else _scan(self.continuation_files)


def read_run(path: str | Path) -> StoredRun:
    """The run at `path`. Of an unfinished one, the windows that are finished; RunError when it is no run."""
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise RunError(f"{path} is not a folder; give the folder that was --out of a scan.")
    identity = read_identity(folder.identity)
    if identity is None:
        raise RunError(f"{path} holds no rote run (no identity.json of one); give the folder that was --out of a scan.")
    manifest = read_manifest(folder.manifest)
    if manifest is None:
        results, continuations = _part_files(folder)
    else:
        results = (folder.results,)
        continuations = (folder.continuations,) if folder.continuations.exists() else None
    if not results or not all(file.exists() for file in results):
        raise RunError(f"{path} holds no results yet; run its scan first.")
    return StoredRun(folder.path, identity, manifest, results, continuations)


def _part_files(folder: RunFolder) -> tuple[tuple[Path, ...], tuple[Path, ...] | None]:
    parts = [folder.part(number) for number in folder.part_numbers()]
    # Part 0 is written when the run starts and says by its files whether continuations are kept.
    keeps_continuations = folder.part(0).continuations.exists()
    whole = [
        part
        for part in parts
        if _has_footer(part.results) and (not keeps_continuations or _has_footer(part.continuations))
    ]
    results = tuple(part.results for part in whole)
    return results, tuple(part.continuations for part in whole) if keeps_continuations else None


def _has_footer(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True


def _scan(files: tuple[Path, ...]) -> pl.LazyFrame:
    # glob=False: a folder name may hold brackets or stars.
    return pl.scan_parquet(list(files), glob=False, hive_partitioning=False)
