"""A figure on its way into the report."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.figure import Figure

from byrote.report.words import THIN_SPACE

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Drawing:
    """A finished figure with its file name, caption and the definition its caption links to."""

    name: str
    caption: str
    figure: Figure
    anchor: str | None = None
    is_wide: bool = False


class Cells(NamedTuple):
    """A table in words. `name` is its file: the page's folder gets tables/NAME.csv."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Link(NamedTuple):
    words: str
    place: str
    """Relative to the page that links."""


def _nothing() -> Iterable["Drawing"]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Content:
    """What one run says, or several of one kind together: the same in terminal, page and overview."""

    kind: str
    label: str
    """What tells it from other content on a page: a model's name, a book, a folder."""
    headline: str
    date: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    notices: tuple[str, ...] = ()
    """What a reader must know before the numbers: an unfinished run, say."""
    tables: tuple[Cells, ...] = ()
    sentences: tuple[str, ...] = ()
    """How sure it is, and what it rests on."""
    draw: Callable[[], Iterable["Drawing"]] = _nothing
    """Called when a page is made."""
    manifests: tuple[tuple[str, str], ...] = ()
    """(name of the run, its manifest as text)."""
    links: tuple[Link, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """What machines read: plain values under plain names."""


class Asked(NamedTuple):
    """What `byrote show` or `byrote report` was asked for beside the run; a section takes what concerns it."""

    queries: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = (0.5, 0.9)
    reveal: bool = False
    """Print what examples otherwise mask."""
    threshold: str | None = None
    """Read scans at another τ, as `byrote.report.view` reads it."""


class Written(NamedTuple):
    """A report: the page, and what was written beside it."""

    page: Path
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Section:
    """One kind of run. `read` gives the content of one run or of several to be compared.

    `show` and `write` take its place where a kind has a terminal summary or a page of its own.
    """

    kind: str
    read: Callable[[Sequence[Path]], Content]
    show: Callable[[Path, Asked], Iterable["RenderableType"]] | None = None
    write: Callable[[Sequence[Path], Path, Asked], Written] | None = None
    read_as_asked: Callable[[Sequence[Path], Asked], Content] | None = None
    """`read` where it depends on what was asked."""

    def content(self, runs: Sequence[Path], asked: Asked) -> Content:
        return self.read(runs) if self.read_as_asked is None else self.read_as_asked(runs, asked)


def contents_json(contents: Sequence[Content]) -> str:
    """A list with one entry a run. What is undefined is null.

    All of it is ASCII: standard output may have any encoding, and lead to a terminal that acts on U+0080 to U+009F.
    """
    text = json.dumps([_plain(_entry(content)) for content in contents], indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _entry(content: Content) -> dict[str, Any]:
    return {
        "kind": content.kind,
        "label": content.label,
        "headline": content.headline,
        "date": content.date,
        "notices": content.notices,
        "facts": dict(content.facts),
        "tables": {
            table.name: [dict(zip(table.heads, row, strict=True)) for row in table.rows] for table in content.tables
        },
        "sentences": content.sentences,
        "numbers": content.numbers,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return value.replace(THIN_SPACE, ",")
    return None if isinstance(value, float) and not math.isfinite(value) else value
