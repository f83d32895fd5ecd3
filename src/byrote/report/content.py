"""What runs found, as one value: terminal, page and JSON are all made from `Content`.

A kind of run is a module with a `SECTION`: `read` turns run folders of that kind into Content, and `run_kinds.py` maps
the kind to the module. Nothing here imports matplotlib, so that commands without figures start fast.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from byrote.report.words import THIN_SPACE

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from byrote.report.analysis.rates import CriterionRate


@dataclass(frozen=True)
class Drawing:
    """A finished figure with its file name, caption and the definition its caption links to."""

    name: str
    caption: str
    figure: "Figure"
    anchor: str | None = None
    is_wide: bool = False


Rows = Sequence[Mapping[str, Any]]
"""A table of numbers: column → value in each row."""


class Cells(NamedTuple):
    """A table in words. `name` is its file: the page's folder gets tables/NAME.csv."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Sentence(str):
    """A sentence with the anchor of the definition it rests on."""

    anchor: str

    def __new__(cls, text: str, anchor: str) -> "Sentence":
        sentence = super().__new__(cls, text)
        sentence.anchor = anchor
        return sentence


class Link(NamedTuple):
    words: str
    place: str
    """Relative to the page that links."""


class Bar(NamedTuple):
    """One rate, drawn as a dot inside its interval."""

    name: str
    entry: "CriterionRate"
    at_most: str
    """The share that answers leave open, in words, where they say something."""


class RateCard(NamedTuple):
    """The rates of one criterion, which is also the anchor of its definition."""

    criterion: str
    title: str
    explanation: str
    bars: tuple[Bar, ...]


class StrongPassage(NamedTuple):
    place: str
    numbers: str
    prefix: str
    pieces: tuple[tuple[str, str], ...]
    """The target and the most likely continuation that differs from it as one text: (text, `same`), or `target` or
    `model` where one of them alone has it."""
    note: str


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The shaded text with its controls, and what only the page of scans with probabilities has beside it."""

    data: str
    """JSON for the page's script, safe inside a script element."""
    continuations: tuple[tuple[str, str], ...]
    """(element id, base64 of gzipped JSON)."""
    strongest: tuple[StrongPassage, ...]
    """For print, where nothing can be clicked."""
    documents: Mapping[str, Rows]
    """Run → the rows of documents.csv in the order of the page, `place` being that in the data."""
    followed: tuple[StrongPassage, ...]
    """Long answers beside the text; empty where no passages were measured."""
    model_cards: tuple[str, ...]
    tables: tuple[Cells, ...] = ()
    compared: tuple[Cells, ...] = ()
    """Of several runs: the tables beside the content's sentences, which then compare the runs."""
    certainty: tuple[Sentence, ...] = ()
    """Of several runs: how sure the first one, `certainty_of`, is."""
    certainty_of: str = ""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What one run found, or several of one kind together."""

    kind: str
    label: str
    """Distinguishes it from other content on a page: a model's name, a book, a folder."""
    headline: str
    question: str = ""
    """What was asked of the model, for a newcomer."""
    date: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    notices: tuple[str, ...] = ()
    """What a reader must know before the numbers: an unfinished run, say."""
    cards: tuple[RateCard, ...] = ()
    tables: tuple[Cells, ...] = ()
    sentences: tuple[str, ...] = ()
    """How sure it is, and what it rests on."""
    strips: Callable[[], Iterable["RenderableType"]] = tuple
    """What a terminal shows between tables and sentences."""
    draw: Callable[[], Iterable[Drawing]] = tuple
    """Called when a page is made, as are `data` and `reader`."""
    data: Callable[[], Mapping[str, Rows]] | None = None
    """File name → numbers at full precision, written as CSV in place of the tables in words."""
    reader: Callable[[], Reader] | None = None
    manifests: tuple[tuple[str, str], ...] = ()
    """(name of the run, its manifest as text)."""
    links: tuple[Link, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """For JSON: plain values under plain names."""


def of_manifests(manifests: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """`date` and `manifests` of Content, from (name of the run, its manifest)."""
    shown = tuple((name, json.dumps(manifest, indent=2, ensure_ascii=False)) for name, manifest in manifests)
    return {"date": str(manifests[0][1]["written_at"])[:10], "manifests": shown}


class Asked(NamedTuple):
    """Options of `byrote show` and `byrote report` that change the content; a section uses those that concern it."""

    queries: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = (0.5, 0.9)
    reveal: bool = False
    """Print what examples otherwise mask."""
    threshold: str | None = None
    """Read scans at another τ, as `byrote.report.view` reads it."""
    epsilon: int | None = None
    """Read scans at a smaller ε."""


DEFAULTS = Asked()


class Written(NamedTuple):
    """A report: the page, and what was written beside it."""

    page: Path
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Section:
    """One kind of run. `read` gives the content of one run, or of several to be compared.

    `write` replaces the common page where a kind has its own.
    """

    read: Callable[[Sequence[Path], Asked], Content]
    write: Callable[[Sequence[Path], Path], Written] | None = None
    is_compared: bool = True
    """False where several runs stand under each other: `read` then takes one at a time."""


def contents_json(contents: Sequence[Content]) -> str:
    """A list with one entry a run. Undefined numbers are null.

    All of it is ASCII: standard output may have any encoding, and lead to a terminal that acts on U+0080 to U+009F.
    """
    entries = [
        {
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
        for content in contents
    ]
    return json.dumps(_plain(entries), indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return value.replace(THIN_SPACE, ",")
    return None if isinstance(value, float) and not math.isfinite(value) else value
