"""texts.parquet: the texts a run scanned, so that a report can show them and a number leads back to its words."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rote.store.columns import Column, Schema
from rote.store.parquet_tables import write_batches
from rote.types import Split

BATCH_CHARACTERS = 1 << 24
BATCH_TEXTS = 1 << 16
TEXT_COLUMNS: Schema = tuple(
    Column(name, "text", is_required=True) for name in ("name", "split", "content_hash", "text")
)


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


def write_texts(path: Path, documents: Iterable[Text], *, run_id: str) -> None:
    # Looking for equal texts would take three times as long as writing them.
    write_batches(path, text_batches(documents), TEXT_COLUMNS, run_id=run_id, values_repeat=False)


def text_batches(documents: Iterable[Text]) -> Iterator[list[dict[str, Any]]]:
    """Rows in batches of about BATCH_CHARACTERS: texts as a whole would be held a second time."""
    batch, characters = list[dict[str, Any]](), 0
    for document in documents:
        text = document.text
        batch.append(
            {
                "name": document.name,
                "split": str(document.split),
                "content_hash": document.content_hash,
                "text": text,
            }
        )
        characters += len(text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
            yield batch
            batch, characters = [], 0
    yield batch
