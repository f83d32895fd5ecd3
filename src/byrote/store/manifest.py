"""identity.json and manifest.json: what a run was made with, and all that is needed to trace a number back.

Results of one configuration, model and text are never mixed with others. The manifest is written last and completes a
run: its section `files` binds every file by size and SHA-256, and it is sealed itself.
"""

import json
import platform
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

from byrote.errors import DamageError, RunError
from byrote.files import parse_json, read_bytes
from byrote.store.files import bound, plain_json, read_sealed_json, require_bound, write_sealed_json

FORMAT_KEY = "byrote_run"
FORMAT = 2
DIFFERENCES_SHOWN = 8
VALUE_CHARACTERS_SHOWN = 80
ABSENT = object()


class RunIdentity(NamedTuple):
    """`values` decide whether two runs are the same; `run_id` is new for every start of a run."""

    kind: str
    """The command that makes such runs: scan, prior, audit."""
    run_id: str
    values: dict[str, Any]
    about: Mapping[str, Any] = {}
    """What readers of the unfinished run need: `model`, its name, and `windows`, how many there will be."""

    @classmethod
    def new(cls, kind: str, values: Mapping[str, Any], about: Mapping[str, Any]) -> Self:
        return cls(kind, uuid.uuid4().hex, dict(values), about)


def write_identity(path: Path, identity: RunIdentity) -> None:
    content = {
        FORMAT_KEY: FORMAT,
        "kind": identity.kind,
        "run_id": identity.run_id,
        "identity": identity.values,
        "about": identity.about,
    }
    write_sealed_json(path, content)


def read_identity(path: Path) -> RunIdentity | None:
    """The identity stored at `path`, or None when there is none; a RunError when it is of another format or damaged."""
    try:
        stored = read_sealed_json(path, advice="choose another folder with --out")
    except DamageError:
        _refuse_other_format(path)
        raise
    if stored is None:
        return None
    return RunIdentity(stored["kind"], stored["run_id"], stored["identity"], stored.get("about", {}))


def _refuse_other_format(path: Path) -> None:
    """The file of an earlier or later byrote, or of another program, is named as such rather than "damaged"."""
    try:
        stored = parse_json(read_bytes(path))
    except (OSError, ValueError):
        return
    if not isinstance(stored, dict) or FORMAT_KEY not in stored:
        raise RunError(f"{path.parent} holds no byrote run (its {path.name} is something else); choose another folder.")
    if stored[FORMAT_KEY] != FORMAT:
        raise RunError(
            f"{path.parent} was made by a byrote with another run format ({stored[FORMAT_KEY]}, here {FORMAT}; "
            f"see {path.name}); read it with that byrote, or measure again into another folder with --out."
        )


def require_same_identity(folder: Path, stored: RunIdentity, now: RunIdentity, *, advice: str) -> None:
    """Raise a RunError that names every difference (the first few with both values) unless there is none."""
    before, after = ({"kind": identity.kind, **identity.values} for identity in (stored, now))
    found = list(differences(before, after))
    if not found:
        return
    shown = "; ".join(found[:DIFFERENCES_SHOWN])
    more = f"; and {len(found) - DIFFERENCES_SHOWN} more" if len(found) > DIFFERENCES_SHOWN else ""
    raise RunError(f"{folder} holds a run made with something else: {shown}{more}. {advice}")


def differences(
    stored: Mapping[str, Any], now: Mapping[str, Any], *, places: tuple[str, str] = ("in the run", "now")
) -> Iterator[str]:
    """`config.top_k: 40 in the run, 20 now` for every entry that differs, compared as JSON would store them."""
    before, after = dict(_leaves(plain_json(stored))), dict(_leaves(plain_json(now)))
    for key in before | after:
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        if old != new:
            yield f"{'.'.join(key)}: {_shown(old)} {places[0]}, {_shown(new)} {places[1]}"


def _leaves(value: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    # An empty mapping is a leaf: it must not look the same as an absent one.
    if isinstance(value, dict) and (value or not key):
        for name, entry in value.items():
            yield from _leaves(entry, (*key, name))
    else:
        yield key, value


def _shown(value: object) -> str:
    if value is ABSENT or value is None:
        return "none" if value is None else "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS_SHOWN else text[:VALUE_CHARACTERS_SHOWN] + "…"


PACKAGES = ("byrote", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "polars", "scipy", "rapidfuzz")


def write_manifest(path: Path, sections: Mapping[str, Any], identity: RunIdentity, files: Iterable[Path]) -> None:
    """Write atomically, with `files` (inside the manifest's folder) bound by size and hash.

    `texts` maps document names to split, content hash and size; `model` holds name, revision and hash; `timings` are
    seconds. Sections of one kind of run alone stand behind those below.
    """
    content = {
        FORMAT_KEY: FORMAT,
        "kind": identity.kind,
        "run_id": identity.run_id,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command_line": [],
        "config": {},
        "seed": 0,
        "model": {},
        "texts": {},
        "device": {},
        "versions": versions(),
        "timings": {},
        "totals": {},
        **sections,
        "files": bound(path.parent, files),
    }
    write_sealed_json(path, content)


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the installed packages that can move a number. Nothing is imported."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest at `path`; None when the run is not complete. One that was changed is a DamageError."""
    return read_sealed_json(path)


def check_files(path: Path, manifest: Mapping[str, Any], identity: RunIdentity, *, known: Iterable[Path]) -> None:
    """Raise a RunError unless the files beside the manifest at `path` are the very ones it was written for.

    A file of `known` that is there but not bound is refused too: it came from elsewhere.
    """
    if manifest["run_id"] != identity.run_id:
        raise RunError(
            f"{path} is of run {manifest['run_id'][:8]}, but identity.json is of run {identity.run_id[:8]}; "
            "one of them comes from another run: restore the right one."
        )
    for name, entry in manifest["files"].items():
        require_bound(path.parent, name, entry)
    for file in known:
        if file.name not in manifest["files"] and file.exists():
            raise RunError(f"{file} does not belong to this run: its manifest does not list it; move it away.")
