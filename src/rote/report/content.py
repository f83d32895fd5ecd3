"""What a product supplies so that its runs can be seen: one `Section` a kind of run, in the product's `section.py`.

The frame (terminal, page, overview) knows products through this alone. `cli/kinds.py` lists the sections there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # a terminal that shows numbers does not wait for drawing
    from rich.console import RenderableType

    from rote.report.drawing import Drawing


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
    """What `rote show` or `rote report` was asked for beside the run; a section takes what concerns it."""

    queries: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = (0.5, 0.9)
    reveal: bool = False
    """Print what examples otherwise mask."""
    threshold: str | None = None
    """Read scans at another τ, as `rote.report.control_threshold` reads it."""


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
