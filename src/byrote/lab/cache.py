"""Folders made once and found again by content hash.

A folder is made under a temporary name and renamed when it is whole, so a half-made one is never found. A lock lets
a second process wait for the first instead of doing the same work; the rename keeps both safe where locks do nothing.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from byrote.errors import StorageError

try:
    import fcntl
except ImportError:  # Windows: no lock; two processes may do the work twice, and the first rename wins.
    fcntl = None  # type: ignore[assignment]

MARKER = "complete.json"
"""Written last, with the size of every file; a folder without it, or with other sizes, is not used."""


class CachedFolder(NamedTuple):
    """A whole folder, and whether this call made it."""

    path: Path
    was_made_now: bool


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


def cached_folder(cache_dir: Path, name: str, *, make: Callable[[Path], object]) -> CachedFolder:
    """`cache_dir/name`, made by `make(folder)` unless a whole one is there. If `make` fails, nothing is left behind."""
    final = cache_dir / name
    if is_whole(final):
        return CachedFolder(final, was_made_now=False)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / f".{name}.lock"):
            if is_whole(final):
                return CachedFolder(final, was_made_now=False)
            return CachedFolder(final, was_made_now=_make_and_rename(final, make))
    except OSError as error:
        raise StorageError(
            f"the cache folder {cache_dir} cannot be used ({error}); set BYROTE_CACHE to a folder you can write to."
        ) from error


def is_whole(folder: Path) -> bool:
    """Whether the marker is there and every file it lists has the size it had when the folder was finished."""
    try:
        sizes = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return all((folder / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError):
        return False


def _make_and_rename(final: Path, make: Callable[[Path], object]) -> bool:
    workplace = Path(tempfile.mkdtemp(prefix=f".making-{final.name}-", dir=final.parent))
    try:
        make(workplace)
        sizes = {
            str(file.relative_to(workplace)): file.stat().st_size
            for file in sorted(workplace.rglob("*"))
            if file.is_file()
        }
        (workplace / MARKER).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        if final.exists() and not is_whole(final):
            shutil.rmtree(final)
        try:
            workplace.rename(final)
        except OSError:
            # Another process without a lock was first; its folder has the same content.
            if not is_whole(final):
                raise
            return False
        return True
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
