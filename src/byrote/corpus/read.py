"""Text files: UTF-8, kept exactly as written; only a byte-order mark goes."""

import glob
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from byrote.errors import TextError
from byrote.files import open_regular, parse_json, read_bytes, require_regular

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_plain_text(path: str | Path) -> str:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error
    mark = _mark(content)
    return _decoded(content[mark:], path, offset=mark)


def read_plain_lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends, one at a time; only U+000A ends one."""
    offset = 0
    try:
        with open_regular(path) as file:
            for line in file:
                mark = _mark(line) if offset == 0 else 0
                yield _decoded(line.removesuffix(b"\n")[mark:], path, offset=offset + mark)
                offset += len(line)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}.") from error


def _mark(content: bytes) -> int:
    return len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0


def _decoded(content: bytes, path: str | Path, *, offset: int) -> str:
    """The text of bytes that begin at `offset` of the file."""
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


class JsonLine(NamedTuple):
    """An object of a file, and the words that name its place."""

    number: int
    place: str
    fields: dict[str, Any]


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """The objects of a file in its order; empty lines are passed over, anything else is refused with its line."""
    for number, line in enumerate(read_plain_lines(path), start=1):
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
            _refuse_halves(fields, place)
        yield JsonLine(number, place, fields)


def _refuse_halves(fields: dict[str, Any], place: str) -> None:
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(f"{place}: half of a surrogate pair, which no UTF-8 text can hold; fix it.") from error


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
    with tempfile.TemporaryDirectory(prefix="byrote-") as folder:
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


ROWS_AT_ONCE = 1000
ONE, SPLITS = "state.json", "dataset_dict.json"


def dataset_folders(folder: Path) -> list[Path]:
    """The datasets saved at `folder`: itself, or one a split; none where it is an ordinary folder."""
    if (folder / ONE).is_file() and (folder / "dataset_info.json").is_file():
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


def dataset_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of every row; only `text` and, where it is there, `id` are read."""
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise TextError(f"{folder} is a saved dataset; to read it: pip install 'byrote[datasets]'.") from error
    with _translated_of_saved_datasets(folder):
        rows = load_from_disk(str(folder))
    if "text" not in rows.column_names:
        names = ", ".join(rows.column_names)
        raise TextError(f"{folder} has no column 'text' (it has {names}); rename the text column.")
    kept = rows.select_columns([name for name in ("id", "text") if name in rows.column_names])
    for start in range(0, len(kept), ROWS_AT_ONCE):
        with _translated_of_saved_datasets(folder):
            batch = kept.select(range(start, min(start + ROWS_AT_ONCE, len(kept)))).to_list()
        for offset, fields in enumerate(batch):
            yield f"{folder}, row {start + offset + 1}", fields


@contextmanager
def _translated_of_saved_datasets(folder: Path) -> Iterator[None]:
    """Whatever libraries make of a damaged folder, in one sentence."""
    try:
        yield
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise TextError(f"{folder} cannot be read as a dataset: {words.rstrip('.')}.") from error


SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
ROWS_PER_BATCH = 1024


class Record(NamedTuple):
    """One document of a file. `key` is None when the file is the document, else the record's id or position."""

    key: str | None
    text: str


def read_records(path: str | Path) -> Iterator[Record]:
    """The documents in `path`, in file order. The ending decides the format (`SUFFIXES`); a folder is a dataset."""
    suffix = os.path.splitext(path)[1].lower()
    if os.path.isdir(path):
        for position, (place, fields) in enumerate(dataset_rows(Path(path)), start=1):
            yield _record(fields.get("id"), fields["text"], place=place, position=position)
    elif suffix == ".parquet":
        yield from _parquet_records(Path(path))
    elif suffix == ".jsonl":
        for number, place, fields in read_json_lines(Path(path)):
            yield _record(fields.get("id"), fields.get("text"), place=place, position=number)
    else:
        yield Record(None, read_plain_text(path))


def _parquet_records(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    position = 0
    try:
        require_regular(path)
        # Absolute: Arrow takes a relative path with a colon for a URI.
        with pq.ParquetFile(path.absolute()) as file:
            names = file.schema_arrow.names
            if "text" not in names:
                raise TextError(f"{path} has no column 'text' (it has {', '.join(names)}); rename the text column.")
            columns = [name for name in ("id", "text") if name in names]
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                for fields in batch.to_pylist():
                    position += 1
                    place = f"{path}, row {position}"
                    yield _record(fields.get("id"), fields["text"], place=place, position=position)
    except UnicodeDecodeError as error:
        raise TextError(f"{path} cannot be read as Parquet: row {position} or later is not UTF-8 text.") from error
    except (OSError, pa.ArrowException, OverflowError, ValueError) as error:
        words = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise TextError(f"{path} cannot be read as Parquet: {words.rstrip('.')}.") from error


def _record(identifier: Any, text: Any, *, place: str, position: int) -> Record:
    if not isinstance(text, str):
        raise TextError(f"{place}: field 'text' is missing or not a string; give every record its text.")
    if identifier is not None and not isinstance(identifier, str | int):
        raise TextError(f"{place}: field 'id' is {type(identifier).__name__}; use a string or a whole number.")
    return Record(str(position) if identifier is None or identifier == "" else str(identifier), text)


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
            raise TextError(f"{source} cannot be read as text; byrote reads {', '.join(SUFFIXES)}.")
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
        raise TextError(f"{what} holds no file that byrote reads ({', '.join(SUFFIXES)}); check the path.")
    return files


def _refuse(error: OSError) -> None:
    raise TextError(f"Folder {error.filename} cannot be read: {error.strerror}.") from error
