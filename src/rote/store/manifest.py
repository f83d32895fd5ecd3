"""manifest.json: all that is needed to trace a number back to what produced it. Written last, it completes a run."""

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rote.errors import RunError
from rote.store.atomic import write_json

PACKAGES = ("rote", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "polars", "scipy", "rapidfuzz")


def build_manifest(
    *,
    config: Mapping[str, Any],
    texts: Mapping[str, Any],
    model: Mapping[str, Any],
    device: Mapping[str, Any],
    seed: int,
    command_line: Sequence[str],
    timings: Mapping[str, float],
    totals: Mapping[str, Any],
    **further: Any,
) -> dict[str, Any]:
    """The manifest in its documented order, with versions and the present time added.

    `texts` maps document names to split, content hash and size; `model` holds id, revision and hash; `timings` are
    seconds. `further` adds sections of its own (the screen's audit, say).
    """
    return {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command_line": list(command_line),
        "config": config,
        "seed": seed,
        "model": model,
        "texts": texts,
        "device": device,
        "versions": versions(),
        "timings": timings,
        "totals": totals,
        **further,
    }


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the packages that can move a number; absent packages are left out.

    Read from package metadata: nothing is imported, so asking costs no start-up of torch.
    """
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write atomically; non-finite numbers become the strings "NaN", "Infinity" and "-Infinity"."""
    write_json(path, manifest)


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest at `path`; None when there is none, that is, when the run is not complete."""
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {error}.") from error
    if not isinstance(manifest, dict):
        raise RunError(f"{path} is no manifest of a rote run.")
    return manifest
