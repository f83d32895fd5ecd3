"""From what the user typed (files, folders, globs, URLs, saved datasets) to what is read, in a fixed order."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rote.corpus.formats import SUFFIXES
from rote.corpus.remote import is_url, list_url
from rote.corpus.saved_datasets import dataset_folders
from rote.errors import TextError
from rote.files import require_regular


class SourceFile(NamedTuple):
    """A file to read: its absolute path, and its path relative to the source it was found through."""

    path: str
    relative: str
    url: str | None = None
    """Where it is, if not on this machine; `path` then only tells it from others."""


def find_files(sources: Sequence[str | Path]) -> list[SourceFile]:
    """The files behind `sources`: sources in the order given, each sorted inside, no file twice.

    Inside folders and globs, hidden entries and files with other endings are passed over; a file named outright
    must be of a kind that can be read.
    """
    files: dict[str, SourceFile] = {}
    real_folder = cache(os.path.realpath)
    for source in sources:
        for file in _files_of(source):
            if file.url is not None:
                files.setdefault(file.path, file)
                continue
            # The same file through a link, or through two sources, is one text.
            here = os.path.abspath(file.path)
            folder, name = os.path.split(here)
            real = os.path.join(real_folder(folder), name) if _is_plain(here) else os.path.realpath(here)
            files.setdefault(real, SourceFile(here, file.relative))
    return list(files.values())


def _is_plain(path: str) -> bool:
    """Whether it is a file itself, and no link to one or to a dataset; anything else is refused."""
    try:
        if stat.S_ISREG(os.lstat(path).st_mode):
            return True
        if not (os.path.isdir(path) and dataset_folders(Path(path))):
            require_regular(path)
    except ValueError as error:  # a zero byte, half of a surrogate pair
        raise TextError(f"{path!r} cannot be read: no file can have this name.") from error
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    return False


def _files_of(source: str | Path) -> Iterable[SourceFile]:
    path = Path(os.path.expanduser(source))
    if is_url(source) and not os.path.lexists(path):
        found = [
            SourceFile(str(Path(url)), relative, url) for url, relative in list_url(str(source), _is_readable_name)
        ]
        return _require(found, f"URL {source}")
    if os.path.isdir(path):
        if datasets := dataset_folders(path):
            return [SourceFile(str(one), one.relative_to(path.parent).as_posix()) for one in datasets]
        return _require(list(_walk(path, base=path)), f"Folder {source}")
    if os.path.lexists(path):
        if path.suffix.lower() not in SUFFIXES:
            raise TextError(f"{source} cannot be read as text; rote reads {', '.join(SUFFIXES)}.")
        return [SourceFile(str(path), path.name)]
    if glob.has_magic(str(path)):
        return _require(list(_match(path)), f"Pattern {source}")
    raise TextError(f"Text {source} does not exist; check the path.")


def _walk(folder: Path, *, base: Path) -> Iterator[SourceFile]:
    found: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in names if _is_readable_name(name)]
    # By folder and then by name: a/z.txt comes before a-b/c.txt.
    lead = os.path.join(base, "")
    for path in sorted(found, key=lambda path: path.split(os.sep)):
        yield SourceFile(path, path[len(lead) :] if path.startswith(lead) else os.path.relpath(path, base))


def _match(pattern: Path) -> Iterator[SourceFile]:
    parts = pattern.parts
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    base = Path(*parts[:fixed])
    for match in sorted(map(Path, glob.glob(str(pattern), recursive=True))):
        if os.path.isdir(match):
            yield from _walk(match, base=base)
        elif _is_readable_name(match.name):
            yield SourceFile(str(match), match.relative_to(base).as_posix())


def _is_readable_name(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def _require(files: list[SourceFile], what: str) -> list[SourceFile]:
    if not files:
        raise TextError(f"{what} holds no file that rote reads ({', '.join(SUFFIXES)}); check the path.")
    return files


def _refuse(error: OSError) -> None:
    raise TextError(f"Folder {error.filename} cannot be read: {error.strerror}.") from error
