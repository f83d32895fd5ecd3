"""Documents: read, hashed, named, and left where they are until their text is needed.

A text is in memory, in a file of its own, or with others in a temporary file. So a corpus takes the memory of its names
and hashes.
"""

import hashlib
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from byrote.corpus.read import Record, SourceFile, fetched, find_files, read_plain_text, read_records
from byrote.errors import TextError
from byrote.types import Split

SPOOL_BYTES = 1 << 26
"""Records beyond that are kept on the disk, in the folder for temporary files."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text. `content_hash` is the SHA-256 of its UTF-8 bytes; positions in windows are offsets into `text`."""

    name: str
    split: Split
    content_hash: str
    characters: int
    place: "str | InFile | InSpool"
    """The text itself, or where it is read whenever `text` is used."""

    @classmethod
    def from_text(
        cls,
        name: str,
        text: str,
        *,
        split: Split,
        place: "InFile | InSpool | None" = None,
        content_hash: str | None = None,
    ) -> "Document":
        """Held in memory, unless it is to be read again from another `place`."""
        return cls(name, split, content_hash or hash_text(text), len(text), text if place is None else place)

    @property
    def text(self) -> str:
        return self.place if isinstance(self.place, str) else self.place.read()

    def held(self) -> "Document":
        """The same with its text in memory, for repeated use."""
        return replace(self, place=self.text)


@dataclass(frozen=True, slots=True)
class InFile:
    """The whole of a text file, which must stay as it was when it was hashed."""

    path: str
    content_hash: str

    def read(self) -> str:
        text = read_plain_text(self.path)
        if hash_text(text) != self.content_hash:
            raise TextError(f"{self.path} was changed while it was scanned; run the same command again.")
        return text


class Spool:
    """Texts behind each other in a temporary file without a name, which is removed with the last reference to it."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._size = 0

    def add(self, text: str) -> "InSpool":
        content = text.encode()
        self._file.seek(self._size)
        self._file.write(content)
        self._size += len(content)
        return InSpool(self, self._size - len(content), len(content))

    def read(self, start: int, size: int) -> str:
        self._file.seek(start)
        return self._file.read(size).decode()


@dataclass(frozen=True, slots=True)
class InSpool:
    spool: Spool
    start: int
    size: int

    def read(self) -> str:
        return self.spool.read(self.start, self.size)


def hash_text(text: str) -> str:
    """SHA-256 of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


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
            place = InFile(file.path, own) if key is None and file.url is None else spool.add(text)
            documents.append(Document.from_text(name, text, split=split, place=place, content_hash=own))
    return documents


def read_corpus(targets: Sequence[str | Path], controls: Sequence[str | Path] = ()) -> list[Document]:
    """Targets, then controls, with names unique across both; controls that are all targets too are an error."""
    documents = read_documents(targets, split=Split.TARGET)
    if controls:
        documents += read_documents(controls, split=Split.CONTROL)
    return combine_documents(documents)


def combine_documents(documents: Iterable[Document]) -> list[Document]:
    """The same documents in the same order, safe to compare: some control is no target, and no name repeats.

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
    name, count = next(iter(Counter(document.name for document in documents).most_common(1)), ("", 0))
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
        yield file, _printable(name)


def _printable(name: str) -> str:
    """File names are bytes; those that are not UTF-8 are escaped, since they could not be stored as text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _readable_records(file: SourceFile) -> Iterator[Record]:
    has_text = False
    with nullcontext(file.path) if file.url is None else fetched(file.url) as here:
        for record in read_records(here):
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
