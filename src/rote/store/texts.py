"""texts.parquet: the texts a run scanned, so that a report can show them and a number leads back to its words."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from rote.store.columns import Column, Schema
from rote.types import Split

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


def text_rows(documents: Iterable[Text]) -> Iterator[dict[str, Any]]:
    for document in documents:
        yield {
            "name": document.name,
            "split": str(document.split),
            "content_hash": document.content_hash,
            "text": document.text,
        }
