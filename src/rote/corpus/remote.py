"""Texts behind a URL (s3://, gs://, hf://, https://, file://, memory://), through fsspec and its file systems.

A file is brought to this machine while it is read, and forgotten afterwards.
"""

import glob
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from rote.errors import TextError

URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)


def is_url(source: str | Path) -> bool:
    return isinstance(source, str) and URL.fullmatch(source) is not None


def list_url(url: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """URL and relative name of every file behind `url`, in a fixed order: itself, those below a folder, or a glob's.

    Below folders and globs only names that are wanted, and nothing hidden.
    """
    with _translated(url):
        system, place = _opened(url)
        if system.isfile(place):
            yield url, PurePosixPath(place).name
            return
        parts = PurePosixPath(place).parts
        base = PurePosixPath(*takewhile(lambda part: not glob.has_magic(part), parts))
        has_magic = len(base.parts) < len(parts)
        found = system.glob(place) if has_magic else system.find(place) if system.isdir(place) else None
    if found is None:
        raise TextError(f"Text {url} does not exist; check the URL.")
    for path in sorted(map(str, found)):
        relative = PurePosixPath(path).relative_to(base).as_posix()
        if is_wanted(PurePosixPath(path).name) and not any(part.startswith(".") for part in relative.split("/")):
            yield system.unstrip_protocol(path), relative


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """The file as one on this machine; refusals name the URL."""
    with tempfile.TemporaryDirectory(prefix="rote-") as folder:
        here = Path(folder, PurePosixPath(url).name)
        with _translated(url):
            system, place = _opened(url)
            system.get_file(place, str(here))
        try:
            yield here
        except TextError as error:
            raise TextError(str(error).replace(str(here), url)) from error


def _opened(url: str) -> tuple[Any, str]:
    import fsspec  # type: ignore[import-untyped]

    system, place = fsspec.core.url_to_fs(url)
    return system, place


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Whatever a file system, a network or a missing package makes of it, in one sentence."""
    try:
        yield
    except TextError:
        raise
    except Exception as error:
        words = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise TextError(f"{url} cannot be read: {words.rstrip('.')}; check the URL and your access to it.") from error
