"""Sources of texts and the formats in them: files, folders, globs, URLs, saved datasets and those of the hub.

Text is UTF-8, kept exactly as written; only a byte-order mark is dropped. Whatever cannot be read is a TextError.

Documents: read, hashed, named, and left where they are until their text is needed.

A text is in memory, in a file of its own, or with others in a temporary file. So a corpus takes as much memory as its
names and hashes.
"""

import glob
import hashlib
import json
import os
import re
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple

from byrote.errors import TextError
from byrote.files import open_regular, parse_json, read_bytes, require_regular
from byrote.types import Split

SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
ROWS_PER_BATCH = 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)
HUB = re.compile(r"hf:(?P<name>[^:@]+)(?:@(?P<revision>[^:@]+))?:(?P<split>[^:]+):(?P<column>[^:]+)")
"""A dataset by its id (or folder), its split and the column of its texts."""
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
    for source in sources:
        for file in _files_of(source):
            if file.url is not None:
                files.setdefault(file.path, file)
                continue
            here = os.path.abspath(file.path)
            try:
                if not (os.path.isdir(here) and _dataset_folders(Path(here))):
                    require_regular(here)
            except OSError as error:
                raise TextError(f"{here} cannot be read: {error.strerror}.") from error
            # The same file through a link, or through two sources, is one text.
            files.setdefault(os.path.realpath(here), SourceFile(here, file.relative))
    return list(files.values())


def _files_of(source: str | Path) -> list[SourceFile]:
    path = Path(os.path.expanduser(source))
    if isinstance(source, str) and URL.fullmatch(source) and not os.path.lexists(path):
        kind, found = "URL", list(_list_url(source))
    elif isinstance(source, str) and source.startswith("hf:") and not os.path.lexists(path):
        return [_hub_dataset(source)]
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


def _hub_dataset(source: str) -> SourceFile:
    """Named by what identifies its texts: the commit that its revision names now."""
    found = HUB.fullmatch(source)
    if found is None:
        raise TextError(
            f"{source} is not a dataset; write hf:org/name:split:column, or hf:org/name@revision:split:column."
        )
    name, revision, split, column = found.groups()
    if not os.path.isdir(os.path.expanduser(name)):
        from huggingface_hub import HfApi

        with _translated(f"{source} cannot be found", "check its name and your access to it"):
            revision = HfApi().dataset_info(name, revision=revision).sha
    at = f"{name}@{revision}" if revision else name
    return SourceFile(source, f"{PurePosixPath(name).name}:{split}", f"hf:{at}:{split}:{column}")


def _hub_rows(place: str) -> Iterator[SourceRow]:
    """Every row of a dataset, streamed; only the column of its texts and, where it is there, `id` are used."""
    found = HUB.fullmatch(place)
    assert found is not None
    name, revision, split, column = found.groups()
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise TextError(f"{place} is a dataset; to read it: pip install 'byrote[datasets]'.") from error
    with _translated(f"{place} cannot be read", "check its name, split and column"):
        rows = load_dataset(os.path.expanduser(name), split=split, revision=revision, streaming=True)
        for number, fields in enumerate(rows, start=1):
            if column not in fields:
                raise TextError(f"{place} has no column {column!r} (it has {', '.join(fields)}); name one of them.")
            yield SourceRow(number, f"{place}, row {number}", {"id": fields.get("id"), "text": fields[column]})


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
    import pyarrow.parquet as pq

    refusal, number = f"{path} cannot be read as Parquet", 0
    with _translated(refusal):
        require_regular(path)
        # Absolute: Arrow takes a relative path with a colon for a URI.
        with pq.ParquetFile(path.absolute()) as file:
            columns = _text_columns(path, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                try:
                    rows = batch.to_pylist()
                except UnicodeDecodeError as error:
                    raise TextError(f"{refusal}: row {number} or later is not UTF-8 text.") from error
                for fields in rows:
                    number += 1
                    yield SourceRow(number, f"{path}, row {number}", fields)


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
            require_regular(file)  # the library would block on a pipe
        rows = load_from_disk(str(folder))
    kept = rows.select_columns(_text_columns(folder, rows.column_names))
    for start in range(0, len(kept), ROWS_PER_BATCH):
        with _translated(refusal):
            batch = kept.select(range(start, min(start + ROWS_PER_BATCH, len(kept)))).to_list()
        for number, fields in enumerate(batch, start=start + 1):
            yield SourceRow(number, f"{folder}, row {number}", fields)


SPOOL_BYTES = 1 << 26
"""Records beyond that are kept on the disk, in the folder for temporary files."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text. `content_hash` is the SHA-256 of its UTF-8 bytes; positions in windows are offsets into `text`."""

    name: str
    split: Split
    content_hash: str
    characters: int
    place: str | Callable[[], str]
    """The text itself, or what reads it whenever `text` is used."""
    source: str | None = None
    """The dataset and commit it was streamed from; None for files."""

    @classmethod
    def from_text(cls, name: str, text: str, *, split: Split, content_hash: str | None = None) -> "Document":
        """Held in memory."""
        return cls(name, split, content_hash or hash_text(text), len(text), text)

    @property
    def text(self) -> str:
        return self.place if isinstance(self.place, str) else self.place()

    @property
    def facts(self) -> dict[str, Any]:
        """Of a manifest."""
        return {"split": str(self.split), "content_hash": self.content_hash, "characters": self.characters}

    def held(self) -> "Document":
        """The same with its text in memory, for repeated use."""
        return replace(self, place=self.text)


class Spool:
    """Texts behind each other in a temporary file without a name, which is removed with the last reference to it."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._size = 0

    def add(self, text: str) -> Callable[[], str]:
        """Keep a text; what is returned reads it."""
        content, start = text.encode(), self._size
        self._file.seek(start)
        self._file.write(content)
        self._size += len(content)
        return partial(self._read, start, len(content))

    def _read(self, start: int, size: int) -> str:
        self._file.seek(start)
        return self._file.read(size).decode()


def read_unchanged(path: str, content_hash: str) -> str:
    """The whole of a text file, which must be as it was when it was hashed."""
    text = read_plain_text(path)
    if hash_text(text) != content_hash:
        raise TextError(f"{path} was changed while it was scanned; run the same command again.")
    return text


def hash_text(text: str) -> str:
    """SHA-256 of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_only(source: str | Path, *, split: Split) -> Document:
    """The text of a file that holds exactly one, in memory."""
    documents = read_documents([source], split=split)
    if len(documents) != 1:
        raise TextError(f"{source} holds {len(documents)} texts; give a file with one.")
    return documents[0].held()


def read_documents(sources: Sequence[str | Path], *, split: Split) -> list[Document]:
    """Every document of the files, folders and globs given, in that order; folders and globs sorted by path.

    Names are unique. A file reached through two sources is read once. An empty record of a `.jsonl` or `.parquet`
    file stays a document (it will give no window and be counted); a source without any text is an error. Every text is
    read here, hashed and left where it is; records, and what came through a URL, are kept in a temporary file.
    """
    if not sources:
        raise TextError(f"No {split} text was given; name at least one file, folder or glob.")
    documents: list[Document] = []
    names, spool = set[str](), Spool()
    for file, file_name in _named_files(find_files(sources)):
        for key, text in _readable_records(file):
            name = _unused(file_name if key is None else f"{file_name}#{key}", names)
            names.add(name)
            own = hash_text(text)
            is_file = key is None and file.url is None
            place = partial(read_unchanged, file.path, own) if is_file else spool.add(text)
            source = file.url if file.url is not None and HUB.fullmatch(file.url) else None
            documents.append(Document(name, split, own, len(text), place, source))
    return documents


def documents_of(texts: Iterable[str | Mapping[str, Any]], *, split: Split) -> list[Document]:
    """Texts in memory: strings, mappings with a `text` and perhaps an `id`, or a dataset whose rows are such mappings.

    Names are the ids, else text-1, text-2, …, counted from the first.
    """
    if isinstance(texts, str | Mapping):
        what = "one text; give a list of texts" if isinstance(texts, str) else "a mapping; give one of its values"
        raise TextError(f"The {split} texts are {what}.")
    documents: list[Document] = []
    names = set[str]()
    for key, text in _records(_rows_in_memory(texts, split)):
        name = _unused(str(key), names)
        names.add(name)
        try:
            documents.append(Document.from_text(name, text, split=split))
        except UnicodeEncodeError as error:
            raise TextError(f"{name} holds half of a surrogate pair, which no UTF-8 text can hold; fix it.") from error
    if not any(document.text.strip() for document in documents):
        raise TextError(f"The {split} texts hold no text (they are empty or only white space); give some.")
    return documents


def _rows_in_memory(texts: Iterable[str | Mapping[str, Any]], split: Split) -> Iterator[SourceRow]:
    for number, given in enumerate(texts, start=1):
        fields = {"text": given} if isinstance(given, str) else given
        if not isinstance(fields, Mapping):
            raise TextError(
                f"{split} text {number} is a {type(given).__name__}; give strings, or mappings with a text."
            )
        key = fields.get("id")
        own = {"text": fields.get("text"), "id": f"text-{number}" if key is None or key == "" else key}
        yield SourceRow(number, f"{split} text {number}", own)


def read_corpus(targets: Sequence[str | Path], controls: Sequence[str | Path] = ()) -> list[Document]:
    """Targets, then controls, with names unique across both; controls that are all targets too are an error."""
    documents = read_documents(targets, split=Split.TARGET)
    if controls:
        documents += read_documents(controls, split=Split.CONTROL)
    return combine_documents(documents)


def combine_documents(documents: Iterable[Document]) -> list[Document]:
    """The same documents in the same order, safe to compare: some control is not a target, and no name repeats.

    A name that occurs in both splits is prefixed with its split (`target/alice.txt`, `control/alice.txt`).
    """
    combined = list(documents)
    _refuse_controls_that_are_targets(combined)
    names = [{document.name for document in combined if document.split is split} for split in Split]
    in_both, taken = set.intersection(*names), set.symmetric_difference(*names)
    result: list[Document] = []
    for document in combined:
        if document.name in in_both:
            name = _unused(f"{document.split}/{document.name}", taken)
            taken.add(name)
            document = replace(document, name=name)
        result.append(document)
    require_unique_names(result)
    return result


def require_unique_names(documents: Sequence[Document]) -> None:
    """Window ids are built from document names, so two documents of one name would be taken for one."""
    for name, count in Counter(document.name for document in documents).most_common(1):
        if count > 1:
            raise TextError(f"{count} documents are named {name!r}; give every document its own name.")


def _refuse_controls_that_are_targets(documents: Sequence[Document]) -> None:
    """Copies among the controls are found and left out window by window; without any other control there is none."""
    target_of = {document.content_hash: document for document in documents if document.split is Split.TARGET}
    controls = [document for document in documents if document.split is Split.CONTROL]
    # Records without text are on neither side.
    if any(control.content_hash not in target_of and control.text.strip() for control in controls):
        return
    controls = [control for control in controls if control.text.strip()]
    if controls:
        first = controls[0]
        others = f", and so are the {len(controls) - 1} other controls" if len(controls) > 1 else ""
        raise TextError(
            f"Control {first.name!r} has the same content as target {target_of[first.content_hash].name!r}{others}; "
            "a text cannot be its own control, so remove it from one side."
        )


def _named_files(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, str]]:
    """Each file with its name, lengthened by parent folders as long as another file has the same one."""
    names, depth = [file.relative for file in files], dict[int, int]()
    counts = Counter(names)
    while clashing := [number for number, name in enumerate(names) if counts[name] > 1]:
        for number in clashing:
            depth[number] = depth.get(number, len(PurePath(files[number].relative).parts)) + 1
            names[number] = "/".join(PurePath(files[number].path).parts[-depth[number] :])
        counts = Counter(names)
    for file, name in zip(files, names, strict=True):
        # File names are bytes; those that are not UTF-8 are escaped, since they could not be stored as text.
        yield file, name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _readable_records(file: SourceFile) -> Iterator[Record]:
    has_text, is_hub = False, file.url is not None and HUB.fullmatch(file.url) is not None
    with nullcontext(file.path) if file.url is None or is_hub else fetched(file.url) as here:
        for record in _records(_hub_rows(file.url)) if file.url is not None and is_hub else read_records(here):
            has_text = has_text or bool(record.text.strip())
            yield record
    if not has_text:
        where = file.url or file.path
        raise TextError(f"{where} holds no text (it is empty or only white space); remove it or fill it.")


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}~{number}"
    return candidate
