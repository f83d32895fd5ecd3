"""Sources of texts and the formats in them: files, folders, globs, URLs and saved datasets.

Text is UTF-8, kept exactly as written; only a byte-order mark goes. Whatever cannot be read is a TextError.
"""

import glob
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from byrote.errors import TextError
from byrote.files import open_regular, parse_json, read_bytes, require_regular

SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
ROWS_PER_BATCH = 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)
SPLITS = "dataset_dict.json"


class SourceFile(NamedTuple):
    """A file to read: its absolute path, and its path relative to the source it was found through."""

    path: str
    relative: str
    url: str | None = None
    """Where it is, if not on this machine; `path` is then no more than a unique name."""


class Record(NamedTuple):
    """One document of a file. `key` is None when the file is the document, else the record's id or position."""

    key: str | None
    text: str


class SourceRow(NamedTuple):
    """The fields of a JSON object or table row, its number in the file from 1 on, and its place in words."""

    number: int
    place: str
    fields: dict[str, Any]


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
        if not (os.path.isdir(path) and _dataset_folders(Path(path))):
            require_regular(path)
    except ValueError as error:  # a zero byte, half of a surrogate pair
        raise TextError(f"{path!r} cannot be read: no file can have this name.") from error
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    return False


def _files_of(source: str | Path) -> list[SourceFile]:
    path = Path(os.path.expanduser(source))
    if isinstance(source, str) and URL.fullmatch(source) and not os.path.lexists(path):
        kind, found = "URL", list(_list_url(source))
    elif os.path.isdir(path):
        if datasets := _dataset_folders(path):
            return [SourceFile(str(one), one.relative_to(path.parent).as_posix()) for one in datasets]
        kind, found = "Folder", list(_walk(path, base=path))
    elif os.path.lexists(path):
        if path.suffix.lower() not in SUFFIXES:
            raise TextError(f"{source} cannot be read as text; byrote reads {', '.join(SUFFIXES)}.")
        return [SourceFile(str(path), path.name)]
    elif glob.has_magic(str(path)):
        kind, found = "Pattern", list(_match(path))
    else:
        raise TextError(f"Text {source} does not exist; check the path.")
    if not found:
        raise TextError(f"{kind} {source} holds no file that byrote reads ({', '.join(SUFFIXES)}); check the path.")
    return found


def _walk(folder: Path, *, base: Path) -> Iterator[SourceFile]:
    def refuse(error: OSError) -> None:
        raise TextError(f"Folder {error.filename} cannot be read: {error.strerror}.") from error

    found: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(parent, name) for name in names if _is_readable_name(name)]
    # By folder and then by name: a/z.txt comes before a-b/c.txt.
    lead = os.path.join(base, "")
    for path in sorted(found, key=lambda path: path.split(os.sep)):
        yield SourceFile(path, path[len(lead) :] if path.startswith(lead) else os.path.relpath(path, base))


def _match(pattern: Path) -> Iterator[SourceFile]:
    base = Path(*takewhile(lambda part: not glob.has_magic(part), pattern.parts))
    for match in sorted(map(Path, glob.glob(str(pattern), recursive=True))):
        if os.path.isdir(match):
            yield from _walk(match, base=base)
        elif _is_readable_name(match.name):
            yield SourceFile(str(match), match.relative_to(base).as_posix())


def _is_readable_name(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def _list_url(url: str) -> Iterator[SourceFile]:
    """Every file behind `url` in a fixed order: itself, those below a folder, or a glob's."""
    with _translated(f"{url} cannot be read", "check the URL and your access to it"):
        system, place = _file_system(url)
        if system.isfile(place):
            yield SourceFile(str(Path(url)), PurePosixPath(place).name, url)
            return
        parts = PurePosixPath(place).parts
        base = PurePosixPath(*takewhile(lambda part: not glob.has_magic(part), parts))
        has_magic = len(base.parts) < len(parts)
        found = system.glob(place) if has_magic else system.find(place) if system.isdir(place) else None
    if found is None:
        raise TextError(f"Text {url} does not exist; check the URL.")
    for path in sorted(map(str, found)):
        relative = PurePosixPath(path).relative_to(base)
        if _is_readable_name(relative.name) and not any(part.startswith(".") for part in relative.parts):
            own = system.unstrip_protocol(path)
            yield SourceFile(str(Path(own)), relative.as_posix(), own)


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """The file as one on this machine; refusals name the URL."""
    with tempfile.TemporaryDirectory(prefix="byrote-") as folder:
        here = Path(folder, PurePosixPath(url).name)
        with _translated(f"{url} cannot be read", "check the URL and your access to it"):
            system, place = _file_system(url)
            system.get_file(place, str(here))
        try:
            yield here
        except TextError as error:
            raise TextError(str(error).replace(str(here), url)) from error


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec  # type: ignore[import-untyped]

    system, place = fsspec.core.url_to_fs(url)
    return system, place


@contextmanager
def _translated(refusal: str, advice: str | None = None) -> Iterator[None]:
    """Whatever a file system, a network or a library raises, as one sentence."""
    try:
        yield
    except TextError:
        raise
    except Exception as error:
        words = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise TextError(f"{refusal}: {words.rstrip('.')}{f'; {advice}' if advice else ''}.") from error


def read_records(path: str | Path) -> Iterator[Record]:
    """The documents in `path`, in file order. The ending decides the format (`SUFFIXES`); a folder is a dataset."""
    suffix = os.path.splitext(path)[1].lower()
    if os.path.isdir(path):
        return _records(_dataset_rows(Path(path)))
    if suffix == ".parquet":
        return _records(_parquet_rows(Path(path)))
    if suffix == ".jsonl":
        return _records(read_json_lines(Path(path)))
    return iter([Record(None, read_plain_text(path))])


def _records(rows: Iterator[SourceRow]) -> Iterator[Record]:
    for number, place, fields in rows:
        key, text = fields.get("id"), fields.get("text")
        if not isinstance(text, str):
            raise TextError(f"{place}: field 'text' is missing or not a string; give every record its text.")
        if key is not None and not isinstance(key, str | int):
            raise TextError(f"{place}: field 'id' is {type(key).__name__}; use a string or a whole number.")
        yield Record(str(number) if key is None or key == "" else str(key), text)


def read_plain_text(path: str | Path) -> str:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    return _decoded(content, path, offset=0)


def read_json_lines(path: Path) -> Iterator[SourceRow]:
    """The objects of a file in its order; empty lines are passed over, anything else is refused with its line."""
    for number, line in enumerate(_plain_lines(path), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            fields = parse_json(line)
        except ValueError as error:
            raise TextError(f"{place}: not JSON ({error}); write one object a line.") from error
        if not isinstance(fields, dict):
            raise TextError(f"{place}: not a JSON object; write one object a line.")
        if "\\u" in line:
            try:
                json.dumps(fields, ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError as error:
                raise TextError(f"{place}: half of a surrogate pair, which no UTF-8 text can hold; fix it.") from error
        yield SourceRow(number, place, fields)


def _plain_lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends, one at a time; only U+000A ends one."""
    offset = 0
    try:
        with open_regular(path) as file:
            for line in file:
                yield _decoded(line.removesuffix(b"\n"), path, offset=offset)
                offset += len(line)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error


def _decoded(content: bytes, path: str | Path, *, offset: int) -> str:
    """The text of bytes that begin at `offset` of the file; at 0 they may begin with a byte-order mark."""
    if offset == 0 and content.startswith(BYTE_ORDER_MARK):
        offset = len(BYTE_ORDER_MARK)
        content = content[offset:]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{path} is not UTF-8 text: byte 0x{content[error.start]:02x} at offset {offset + error.start}; "
            "convert it to UTF-8 first."
        ) from error
    zero = content.find(b"\0")
    if zero >= 0:
        raise TextError(f"{path} is a binary file: zero byte at offset {offset + zero}; give a text file.")
    return text


def _parquet_rows(path: Path) -> Iterator[SourceRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        require_regular(path)
        # Absolute: Arrow takes a relative path with a colon for a URI.
        with pq.ParquetFile(path.absolute()) as file:
            columns = _text_columns(path, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                for fields in batch.to_pylist():
                    number += 1
                    yield SourceRow(number, f"{path}, row {number}", fields)
    except UnicodeDecodeError as error:
        raise TextError(f"{path} cannot be read as Parquet: row {number} or later is not UTF-8 text.") from error
    except (OSError, pa.ArrowException, OverflowError, ValueError) as error:
        words = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise TextError(f"{path} cannot be read as Parquet: {words.rstrip('.')}.") from error


def _text_columns(path: Path, names: Sequence[str]) -> list[str]:
    if "text" not in names:
        raise TextError(f"{path} has no column 'text' (it has {', '.join(names)}); rename the text column.")
    return [name for name in ("id", "text") if name in names]


def _dataset_folders(folder: Path) -> list[Path]:
    """The datasets that save_to_disk left at `folder`: itself, or one a split; none where it is an ordinary folder."""
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        return [folder]
    if not (folder / SPLITS).is_file():
        return []
    try:
        splits = parse_json(read_bytes(folder / SPLITS))["splits"]
        if isinstance(splits, list) and all(split and split == Path(split).name for split in set(splits)):
            return [folder / split for split in dict.fromkeys(splits)]
        raise ValueError("a split is no folder beside it")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TextError(f"{folder / SPLITS} is not what save_to_disk writes; save the dataset again.") from error


def _dataset_rows(folder: Path) -> Iterator[SourceRow]:
    """Every row of a saved dataset; only `text` and, where it is there, `id` are read."""
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise TextError(f"{folder} is a saved dataset; to read it: pip install 'byrote[datasets]'.") from error
    refusal = f"{folder} cannot be read as a dataset"
    with _translated(refusal):
        for file in folder.iterdir():
            require_regular(file)  # the library would wait at a pipe
        rows = load_from_disk(str(folder))
    kept = rows.select_columns(_text_columns(folder, rows.column_names))
    for start in range(0, len(kept), ROWS_PER_BATCH):
        with _translated(refusal):
            batch = kept.select(range(start, min(start + ROWS_PER_BATCH, len(kept)))).to_list()
        for number, fields in enumerate(batch, start=start + 1):
            yield SourceRow(number, f"{folder}, row {number}", fields)
