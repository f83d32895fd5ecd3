"""manifest.json: all that is needed to trace a number back to what produced it. Written last, it completes a run.

Its section `files` binds every file of the run by size and SHA-256, and the manifest is sealed itself.
"""

import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from byrote.errors import RunError
from byrote.store.files import damaged, hash_file, read_sealed_json, write_sealed_json
from byrote.store.identity import FORMAT, FORMAT_KEY, RunIdentity

PACKAGES = ("byrote", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "polars", "scipy", "rapidfuzz")


def write_manifest(path: Path, sections: Mapping[str, Any], identity: RunIdentity, files: Iterable[Path]) -> None:
    """Write atomically, with `files` (inside the manifest's folder) bound by size and hash.

    Sections stand in the order below, those of a kind of run alone (the screen's audit, say) behind them. `texts` maps
    document names to split, content hash and size; `model` holds name, revision and hash; `timings` are seconds.
    """
    bound = {
        file.relative_to(path.parent).as_posix(): {"bytes": file.stat().st_size, "sha256": hash_file(file)}
        for file in files
    }
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
        "files": bound,
    }
    write_sealed_json(path, content)


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the packages that can move a number; absent packages are left out.

    Read from package metadata: nothing is imported.
    """
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest at `path`; None when there is none, that is, when the run is not complete.

    One that is empty, cut or changed is a DamageError.
    """
    return read_sealed_json(path)


def check_files(path: Path, manifest: Mapping[str, Any], identity: RunIdentity, *, known: Iterable[Path]) -> None:
    """Raise a RunError unless the files beside the manifest at `path` are the very ones it was written for.

    A file of `known` that is there but not bound is refused too: it came from elsewhere.
    """
    if manifest["run_id"] != identity.run_id:
        raise RunError(
            f"{path} is of run {manifest['run_id'][:8]}, but identity.json of run {identity.run_id[:8]}; "
            "one of them comes from another run: restore the right one."
        )
    for name, bound in manifest["files"].items():
        _check_file(path.parent / name, size=bound["bytes"], sha256=bound["sha256"])
    for file in known:
        if file.name not in manifest["files"] and file.exists():
            raise RunError(f"{file} does not belong to this run, whose manifest does not list it; take it away.")


def _check_file(file: Path, *, size: int, sha256: str) -> None:
    try:
        found = file.stat().st_size
        if found != size:
            raise damaged(file, f"it has {found:,} bytes, {size:,} were written")
        digest = hash_file(file)
    except FileNotFoundError:
        raise damaged(file, "it is missing") from None
    except OSError as error:
        raise RunError(f"Cannot read {file}: {error.strerror}.") from error
    if digest != sha256:
        raise damaged(file, f"its hash is {digest[:8]}…, that of the file written {sha256[:8]}…")
