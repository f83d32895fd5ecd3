"""Which runs a folder holds, by what they say of themselves. Listing trusts seals and hashes no table."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rote.errors import RunError
from rote.store.folder import RunFolder
from rote.store.identity import read_identity
from rote.store.manifest import read_manifest
from rote.store.parquet_tables import stored_rows

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
