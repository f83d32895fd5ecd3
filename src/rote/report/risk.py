"""The risk of every document of a run, by number of queries, from its stored rows."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rote.report.selection import selection_words
from rote.report.view import Document, RunView
from rote.report.words import integer, percent, probability
from rote.stats.population import Floats, Population
from rote.stats.work_risk import expected_characters, leak_probability, stretches
from rote.types import Split

QUERIES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
DOCUMENTS_SHOWN = 12


class Risk(NamedTuple):
    """One document asked about n times at random; certified lower and upper ends, equal where nothing was searched."""

    document: Document
    queries: float
    edits: int
    leak_low: float
    leak_high: float
    characters_low: float
    characters_high: float
    covered: int
    """Characters that stand in some suffix."""

    @property
    def share_low(self) -> float:
        return self.characters_low / self.covered

    @property
    def share_high(self) -> float:
        return self.characters_high / self.covered


def document_risks(view: RunView, document: Document, queries: Sequence[float] = QUERIES) -> list[Risk]:
    """Within 0 edits, and within the whole budget where near-verbatim masses were measured."""
    part = view.population.select(view.rows_of(document))
    risks = []
    for edits, *ends in _masses(part):
        texts = [stretches(part.suffix_char_start, part.char_end, masses) for masses in ends]
        for n in queries:
            low, high = (leak_probability(masses, n) for masses in ends)
            least, most = (expected_characters(text, n) for text in texts)
            risks.append(Risk(document, n, edits, low, high, least, most, texts[0].covered))
    return risks


def _masses(part: Population) -> list[tuple[int, Floats, Floats]]:
    verbatim = part.verbatim()
    found = [(0, verbatim, verbatim)]
    if part.mass_lower is not None and part.edit_budget:
        upper = np.ones(len(part)) if part.mass_upper is None else part.mass_upper[:, -1]
        found.append((part.edit_budget, part.mass(part.edit_budget), upper))
    return [(edits, np.minimum(low, 1.0), np.minimum(high, 1.0)) for edits, low, high in found]


def works_of(view: RunView) -> list[Document]:
    """Documents of several windows, targets and then those that leak most first; a record of one is no work."""
    works = [document for document in view.documents if document.windows > 1]
    return sorted(works, key=lambda one: (one.split == Split.CONTROL, -_mean_mass(view, one)))


def _mean_mass(view: RunView, document: Document) -> float:
    part = view.population.select(view.rows_of(document))
    return float(part.mass(part.edit_budget).mean())


def risk_table(views: Sequence[RunView]) -> pl.DataFrame | None:
    """One row per run, work, number of edits and number of queries; None without a work."""
    rows = [
        {
            "run": view.label,
            "document": risk.document.name,
            "split": risk.document.split,
            "edits": risk.edits,
            "queries": risk.queries,
            "leak_at_least": risk.leak_low,
            "leak_at_most": risk.leak_high,
            "characters_at_least": risk.characters_low,
            "characters_at_most": risk.characters_high,
            "characters_covered": risk.covered,
        }
        for view in views
        for document in works_of(view)
        for risk in document_risks(view, document)
    ]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else None


def show_risk(view: RunView, documents: Sequence[Document], queries: Sequence[float] = QUERIES) -> RenderableType:
    """A table for each document."""
    parts: list[RenderableType] = [Text(question_words(view), style="dim")]
    for document in documents[:DOCUMENTS_SHOWN]:
        parts += [Text(), _table(document, document_risks(view, document, queries))]
    if len(documents) > DOCUMENTS_SHOWN:
        rest = f"{len(documents) - DOCUMENTS_SHOWN} more documents are in the report's tables/risk.csv."
        parts += [Text(), Text(rest, style="dim")]
    return Group(*parts)


def question_words(view: RunView) -> str:
    """What was asked, and what the ends are."""
    return (
        "Somebody asks n times: each time a window of the document at random, its prefix given, one answer sampled. "
        "How likely is it that some answer is the passage, and how many characters come out on average? At least: by "
        "lower bounds. At most: by upper bounds, in which a window that was not searched counts as certain. "
        f"{selection_words(view)}."
    ).replace("\u2009", ",")


def _table(document: Document, risks: Sequence[Risk]) -> Table:
    title = f"{document.name} ({document.split}), {integer(risks[0].covered)} characters in suffixes"
    table = Table(
        title=title.replace("\u2009", ","), title_justify="left", box=None, pad_edge=False, header_style="dim"
    )
    for heading in ("queries", "edits", "some passage leaks", "characters", "share"):
        table.add_column(heading, justify="left" if heading == "edits" else "right")
    for risk in risks:
        table.add_row(
            f"{risk.queries:,.0f}",
            "exact" if risk.edits == 0 else f"ε ≤ {risk.edits}",
            _ends(_chance, risk.leak_low, risk.leak_high),
            _ends(_characters, risk.characters_low, risk.characters_high),
            _ends(percent, risk.share_low, risk.share_high),
        )
    return table


def _ends(words: Callable[[float], str], low: float, high: float) -> str:
    return words(low) if words(low) == words(high) else f"{words(low)} to {words(high)}"


def _chance(value: float) -> str:
    """Never 1 when it is not."""
    return "> 0.999" if 0.999 < value < 1 else probability(value)


def _characters(value: float) -> str:
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"
