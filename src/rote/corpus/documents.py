"""Documents: texts read from files, each with a stable name and the hash of its content.

A name says where the text came from, relative to the source the user gave, with forward slashes: `alice.txt`,
`novels/alice.txt`, `people.jsonl#17` (the line, or the record's own `id`). Files that would share a name are told
apart by as many parent folders as it takes; records that share an id get `~2`, `~3`, …
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rote.corpus.formats import Record, read_records
from rote.corpus.remote import fetched
from rote.corpus.sources import SourceFile, find_files
from rote.errors import TextError
from rote.types import Split


@dataclass(frozen=True, slots=True)
class Document:
    """One text. `content_hash` is the SHA-256 of its UTF-8 bytes; positions in windows are offsets into `text`."""

    name: str
    text: str
    split: Split
    content_hash: str

    @classmethod
    def from_text(cls, name: str, text: str, *, split: Split) -> "Document":
        return cls(name=name, text=text, split=split, content_hash=hashlib.sha256(text.encode()).hexdigest())


def read_documents(sources: Sequence[str | Path], *, split: Split) -> list[Document]:
    """Every document of the files, folders and globs given, in that order; folders and globs sorted by path.

    Names are unique. A file reached through two sources is read once. An empty record of a `.jsonl` or `.parquet`
    file stays a document (it will give no window and be counted); a source without any text is an error.
    """
    if not sources:
        raise TextError(f"No {split} text was given; name at least one file, folder or glob.")
    documents: list[Document] = []
    names: set[str] = set()
    for file, file_name in _named_files(find_files(sources)):
        for record in _readable_records(file):
            name = _unused(file_name if record.key is None else f"{file_name}#{record.key}", names)
            names.add(name)
            documents.append(Document.from_text(name, record.text, split=split))
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
    splits_of: dict[str, set[Split]] = {}
    for document in combined:
        splits_of.setdefault(document.name, set()).add(document.split)
    taken = {name for name, splits in splits_of.items() if len(splits) == 1}
    result: list[Document] = []
    for document in combined:
        if len(splits_of[document.name]) > 1:
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
    # Records without text say nothing about either side.
    controls = [document for document in documents if document.split is Split.CONTROL and document.text.strip()]
    if controls and all(control.content_hash in target_of for control in controls):
        first = controls[0]
        others = f", and so are the {len(controls) - 1} other controls" if len(controls) > 1 else ""
        raise TextError(
            f"Control {first.name!r} has the same content as target {target_of[first.content_hash].name!r}{others}; "
            "a text cannot be its own control, so remove it from one side."
        )


def _named_files(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, str]]:
    """Each file with its name, lengthened by parent folders as long as another file has the same one."""
    depth = {file.path: len(Path(file.relative).parts) for file in files}
    names = {file.path: file.relative for file in files}
    while True:
        counts = Counter(names.values())
        clashing = [path for path, name in names.items() if counts[name] > 1]
        if not clashing:
            break
        for path in clashing:
            depth[path] += 1
            names[path] = "/".join(path.parts[-depth[path] :])
    for file in files:
        yield file, _printable(names[file.path])


def _printable(name: str) -> str:
    """File names are bytes; those that are not UTF-8 are escaped, since they could not be stored as text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _readable_records(file: SourceFile) -> list[Record]:
    if file.url is None:
        records = list(read_records(file.path))
    else:
        with fetched(file.url) as here:
            records = list(read_records(here))
    if not any(record.text.strip() for record in records):
        where = file.url or file.path
        raise TextError(f"{where} holds no text (it is empty or only white space); remove it or fill it.")
    return records


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}~{number}"
    return candidate
