"""Folders made once and found again by content hash.

A folder is made under a temporary name and renamed when it is whole, so a half-made one is never found. A lock lets
a second process wait for the first instead of doing the same work.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from byrote.errors import StorageError

MARKER = "complete.json"
"""Written last, with the size of every file; a folder without it, or with other sizes, is not used."""


def default_cache_dir() -> Path:
    """`$BYROTE_CACHE`, else `$XDG_CACHE_HOME/byrote`, else `~/.cache/byrote`."""
    if chosen := os.environ.get("BYROTE_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "byrote"


def content_key(content: object) -> str:
    """A name that changes whenever the JSON form of `content` does."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False).encode("utf-8")
    return hashlib.sha256(canonical).hexdigest()[:20]


def cached_folder(cache_dir: Path | None, name: str, *, make: Callable[[Path], object]) -> Path:
    """`cache_dir/name`, made by `make(folder)` unless a whole one is there. If `make` fails, nothing is left behind.

    `None` means the user's cache folder.
    """
    cache_dir = cache_dir or default_cache_dir()
    final = cache_dir / name
    if _is_whole(final):
        return final
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / f".{name}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(final):
                _make_and_rename(final, make)
    except OSError as error:
        raise StorageError(
            f"the cache folder {cache_dir} cannot be used ({error}); free some space or set BYROTE_CACHE to "
            "a folder you can write to."
        ) from error
    return final


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return all((folder / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError):
        return False


def _make_and_rename(final: Path, make: Callable[[Path], object]) -> None:
    workplace = Path(tempfile.mkdtemp(prefix=f".making-{final.name}-", dir=final.parent))
    try:
        make(workplace)
        files = [file for file in sorted(workplace.rglob("*")) if file.is_file()]
        sizes = {str(file.relative_to(workplace)): file.stat().st_size for file in files}
        (workplace / MARKER).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)  # damaged, or it would have been used
        workplace.rename(final)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
