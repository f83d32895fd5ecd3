"""RUN/texts.parquet: the texts a run scanned, so that a report can show them and a number leads back to its words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rote.errors import StorageError
from rote.store.atomic import atomic_file
from rote.store.folder import RunFolder
from rote.types import Split


class Text(Protocol):
    """A document, as far as the store cares."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def split(self) -> Split: ...
    @property
    def content_hash(self) -> str: ...


def write_texts(folder: Path, documents: Sequence[Text]) -> None:
    """Write the texts once, atomically; a resumed run finds them there and leaves them."""
    path = RunFolder(folder).texts
    if path.exists():
        return
    table = pa.table(
        {
            "name": [document.name for document in documents],
            "split": [str(document.split) for document in documents],
            "content_hash": [document.content_hash for document in documents],
            "text": [document.text for document in documents],
        }
    )
    try:
        with atomic_file(path) as stream:
            pq.write_table(table, stream, compression="zstd")
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror or error}; free some space and run again.") from error
