"""The risk of whole documents: the chance that n random queries bring out a passage, and how much of the text."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from byrote.errors import ConfigError
from byrote.report.content import Cells, Content, Drawing
from byrote.report.figures.overlays import shortened
from byrote.report.figures.style import SERIES, SOFT, WIDE, log_axis, percent_axis
from byrote.report.view import RunView, ViewedDocument, selection_words
from byrote.report.words import integer, percent, plural, probability
from byrote.stats.answers import mean_mass_at_most
from byrote.stats.curves import query_grid
from byrote.stats.population import Floats, Population
from byrote.stats.risk import Stretches, expected_characters, leak_probability, raised, stretches
from byrote.types import Split

QUERIES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
PAGE_QUERIES = (1.0, 100.0, 10_000.0)
MOST_QUERIES = 1e6
DOCUMENTS_SHOWN = 12
RECORDS_SHOWN = 40
DOCUMENTS_DRAWN = 6


class Risk(NamedTuple):
    """One document asked about n times at random: certified ends, equal where nothing was searched, and 95 % limits."""

    document: ViewedDocument
    edits: int
    queries: float
    leak_at_least: float
    leak_at_most: float
    leak_limit_95: float
    """At most this at 95 % confidence, from what was sampled; the certified end where that is lower."""
    characters_at_least: float
    characters_at_most: float
    characters_limit_95: float
    characters_covered: int
    """Those that stand in some suffix."""

    @property
    def share_low(self) -> float:
        """NaN where suffixes have tokens and no characters."""
        return self.characters_at_least / self.characters_covered if self.characters_covered else math.nan

    @property
    def share_high(self) -> float:
        return self.characters_at_most / self.characters_covered if self.characters_covered else math.nan

    @property
    def share_limit(self) -> float:
        return self.characters_limit_95 / self.characters_covered if self.characters_covered else math.nan


def document_risks(view: RunView, document: ViewedDocument, queries: Sequence[float] = QUERIES) -> list[Risk]:
    """Within 0 edits, and within the whole budget where near-verbatim masses were measured."""
    part = view.population.select(view.rows_of(document))
    risks = []
    for edits, *ends in _ends_of(view, part):
        for n in queries:
            low, high, limit = (leak_probability(end.mean, n) for end in ends)
            least, most, limited = (expected_characters(end.text, n) for end in ends)
            characters = (least, most, min(most, limited))
            risks.append(Risk(document, edits, n, low, high, min(high, limit), *characters, ends[0].text.covered))
    return risks


class _End(NamedTuple):
    """What a document's windows weigh on average, and the chance that a query recovers each of its stretches."""

    mean: float
    text: Stretches


def _ends_of(view: RunView, part: Population) -> list[tuple[int, _End, _End, _End]]:
    """Edits, and the ends: certified lower, certified upper, limit at 95 % confidence."""
    verbatim, most = _end(part, part.verbatim()), _end(part, part.verbatim_upper())
    found = [(0, verbatim, most, most)]
    if part.mass_lower is not None and part.edit_budget:
        upper = np.ones(len(part)) if part.mass_upper is None else part.mass_upper[:, -1]
        low, high = _end(part, part.mass(part.edit_budget)), _end(part, upper)
        found.append((part.edit_budget, low, high, _limit(part) or high))
    return found


def _end(part: Population, masses: Floats) -> _End:
    masses = np.minimum(masses, 1.0)
    return _End(float(masses.mean()), stretches(part.suffix_char_start, part.char_end, masses))


def _limit(part: Population) -> _End | None:
    """By the sampled answers; None where there are none, and where upper bounds say as much."""
    if part.answers is None or part.answer_hits is None or part.mass_upper is None:
        return None
    known, hits = part.mass(part.edit_budget), int(part.answer_hits[:, -1].sum())
    mean = mean_mass_at_most(hits, int(part.answers.sum()))
    if not mean < part.mass_upper[:, -1].mean():
        return None
    longest = int((part.char_end - part.suffix_char_start).max(initial=0))
    return _End(mean, raised(_end(part, known).text, max(0.0, mean - float(known.mean())) * longest))


def works_of(view: RunView) -> list[ViewedDocument]:
    """Documents of several windows, unless most windows are those of records, which have one each."""
    works = [document for document in view.documents if document.windows > 1]
    is_about_works = 2 * sum(work.windows for work in works) >= len(view.population)
    return _by_leak(view, works) if is_about_works else []


def _by_leak(view: RunView, documents: Iterable[ViewedDocument]) -> list[ViewedDocument]:
    """Targets before controls, those that leak most first."""

    def place(document: ViewedDocument) -> tuple[bool, float]:
        part = view.population.select(view.rows_of(document))
        return document.split == Split.CONTROL, -float(part.mass(part.edit_budget).mean())

    return sorted(documents, key=place)


def risk_rows(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """One row per run, work, number of edits and number of queries."""
    return [row for view in views for row in risks_of(view, works_of(view), QUERIES)]


def risks_of(view: RunView, documents: Sequence[ViewedDocument], queries: Sequence[float]) -> list[dict[str, Any]]:
    """One row per document, number of edits and number of queries."""
    return [
        {"run": view.label, **risk._asdict(), "document": document.name, "split": document.split}
        for document in documents
        for risk in document_risks(view, document, queries)
    ]


def documents_asked(view: RunView, name: str | None) -> Sequence[ViewedDocument]:
    """The document of this name; without one all."""
    if name is None:
        return view.documents
    found = [document for document in view.documents if document.name == name]
    if not found:
        names = ", ".join(document.name for document in view.documents[:5])
        raise ConfigError(f"document is {name}, but the run has {names}; name one of its documents.")
    return found


def risk_content(view: RunView, documents: Sequence[ViewedDocument], queries: Sequence[float]) -> Content:
    """A table for each document of several windows, after one of those with one window, each with its own prefix."""
    measured = selection_words(view)
    works = _by_leak(view, (document for document in documents if document.windows > 1))
    records = _by_leak(view, (document for document in documents if document.windows == 1))
    if not works:
        edits = view.population.edit_budget
        near = f" or within {view.edits_words(edits)} of it" if edits else ""
        question = (
            "Somebody asks n times, each time with the record's own prefix, one answer sampled. How likely is it that "
            f"some answer is the record{near}? At least: by lower bounds. At most: at 95 % confidence for each record "
            f"by itself, by samples of what its search left open. {measured}."
        )
    else:
        question = (
            "Somebody asks n times: each time a window of the document at random, its prefix given, one answer "
            "sampled. How likely is it that some answer is the passage, and how much of its text comes out on average? "
            "At least: by lower bounds. At most: by upper bounds, in which a window that was not searched counts as "
            "certain; and at 95 % confidence, by samples of what searches left open and the audit of the screen. "
            f"{measured}."
        )
    tables = [_record_cells(view, records, queries)] if records else []
    tables += [_document_cells(one, document_risks(view, one, queries)) for one in works[:DOCUMENTS_SHOWN]]
    left = len(works) - DOCUMENTS_SHOWN
    rest = (f"{plural(left, 'more document')} of several windows; --document NAME shows one.",) if left > 0 else ()
    subject = plural(len(documents), "document" if works else "record")
    headline = f"The risk of {subject}, {view.model}"
    return Content(
        kind="scan", label=view.label, headline=headline, question=question, tables=tuple(tables), sentences=rest
    )


def _record_cells(view: RunView, ordered: Sequence[ViewedDocument], queries: Sequence[float]) -> Cells:
    rows = tuple(
        (_name(document), *map(_leak_words, document_risks(view, document, queries)[-len(queries) :]))
        for document in ordered[:RECORDS_SHOWN]
    )
    left = len(ordered) - RECORDS_SHOWN
    one = "record" if view.is_records else "document"
    rest = f"{left:,} more {one}s leak less; byrote export has the masses of all." if left > 0 else ""
    title = "Those that leak most first" if view.is_records else "Documents of one window, those that leak most first"
    return Cells("records", title, (one, *(f"n = {count:,.0f}" for count in queries)), rows, rest)


def _document_cells(document: ViewedDocument, risks: Sequence[Risk]) -> Cells:
    title = f"{document.name} ({document.split}), {integer(risks[0].characters_covered)} characters in suffixes"
    heads = ("queries", "edits", "some passage leaks", "at most, 95 %", "of the characters", "at most, 95 %")
    rows = tuple(
        (
            f"{risk.queries:,.0f}",
            "exact" if risk.edits == 0 else f"ε ≤ {risk.edits}",
            _ends(_chance, risk.leak_at_least, risk.leak_at_most),
            _chance(risk.leak_limit_95),
            _ends(percent, risk.share_low, risk.share_high),
            percent(risk.share_limit),
        )
        for risk in risks
    )
    return Cells("risk", title, heads, rows)


def risk_cells(views: Sequence[RunView]) -> tuple[Cells, ...]:
    """The works that leak most, within the widest edit budget measured; nothing without a work."""
    works = [(view, document) for view in views for document in works_of(view)]
    rows = []
    for view, document in works[:DOCUMENTS_SHOWN]:
        risks = document_risks(view, document, PAGE_QUERIES)[-len(PAGE_QUERIES) :]
        name = _name(document) if len(views) == 1 else f"{view.label}: {_name(document)}"
        share = _ends(percent, risks[-1].share_low, risks[-1].share_limit)
        rows.append((name, *map(_leak_words, risks), share))
    left = len(works) - DOCUMENTS_SHOWN
    note = (
        "Somebody asks n times, each time a window of the document at random: the chance that some answer is the "
        "passage or within the edit budget of it, from what is certified to the limit at 95 % confidence. A window "
        "that was neither searched nor sampled counts as certain in the limit."
    ) + (f" {left} more rows are in tables/risk.csv." if left > 0 else "")
    title = "Risk of whole documents: the chance that n random queries bring out a passage"
    heads = ("document", *(f"n = {n:,.0f}" for n in PAGE_QUERIES), f"of its text, n = {PAGE_QUERIES[-1]:,.0f}")
    return (Cells("risk", title, heads, tuple(rows), note),) if rows else ()


def _name(document: ViewedDocument) -> str:
    return document.name if document.split == Split.TARGET else f"{document.name}, control"


def _leak_words(risk: Risk) -> str:
    """Between two ends; at least is never 1, which no number of queries reaches."""
    low, high = (
        "> 0.999" if chance > 0.999 else probability(chance) for chance in (risk.leak_at_least, risk.leak_limit_95)
    )
    return low if low == high else f"{low} to {'1' if risk.leak_limit_95 > 0.999 else high}"


def _ends(words: Callable[[float], str], low: float, high: float) -> str:
    """Both ends, or the one number that they are in words."""
    first, last = words(low), words(high)
    return first if first == last else f"{first} to {last}"


def _chance(value: float) -> str:
    """Never 1 when it is not."""
    return "> 0.999" if 0.999 < value < 1 else probability(value)


def risk_by_queries(documents: Sequence[Sequence[Risk]]) -> Figure:
    """Left the chance of a leak, right the share of characters: full lines are certified lower ends, dashed ones upper
    limits at 95 % confidence."""
    figure = Figure(figsize=(WIDE, 3.9), layout="constrained")
    leaks, characters = figure.subplots(1, 2)
    for index, risks in enumerate(documents[:DOCUMENTS_DRAWN]):
        colour, label = SERIES[index % len(SERIES)], risks[0].document.name
        queries = [risk.queries for risk in risks]
        for axes, low, limit in (
            (leaks, [risk.leak_at_least for risk in risks], [risk.leak_limit_95 for risk in risks]),
            (characters, [risk.share_low for risk in risks], [risk.share_limit for risk in risks]),
        ):
            axes.plot(queries, low, color=colour, label=shortened(label, WIDE / 3))
            axes.plot(queries, limit, color=colour, linestyle="--", linewidth=1)
    for axes, name in ((leaks, "Chance that some passage leaks"), (characters, "Characters recovered, on average")):
        log_axis(axes, "x")
        percent_axis(axes)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("queries to random windows, n")
        axes.set_title(name)
    leaks.plot([], [], color=SOFT, label="at least, certified")
    leaks.plot([], [], color=SOFT, linestyle="--", linewidth=1, label="at most, 95 % confidence")
    figure.legend(*leaks.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def spread_out(works: Sequence[ViewedDocument]) -> list[ViewedDocument]:
    """As many as a figure holds: from the target that leaks most to the one that leaks least, then controls."""
    if len(works) <= DOCUMENTS_DRAWN:
        return list(works)
    controls = [work for work in works if work.split == Split.CONTROL]
    targets = [work for work in works if work.split == Split.TARGET]
    most_targets = DOCUMENTS_DRAWN - min(2, len(controls)) if targets else 0
    chosen = _evenly(targets, most_targets)
    return [*chosen, *_evenly(controls, DOCUMENTS_DRAWN - len(chosen))]


def _evenly(works: Sequence[ViewedDocument], count: int) -> list[ViewedDocument]:
    places = np.unique(np.linspace(0, len(works) - 1, min(count, len(works))).round().astype(int))
    return [works[place] for place in places]


def risk_drawings(views: Sequence[RunView]) -> list[Drawing]:
    """One figure of a run with documents of several windows; within the whole budget where it was measured."""
    (view,) = views
    works = [document_risks(view, document, query_grid(MOST_QUERIES)) for document in spread_out(works_of(view))]
    if not works:
        return []
    caption = (
        "Somebody asks n times about windows taken at random: the chance that some passage comes out, and the "
        "share of the characters in suffixes recovered on average. Of many documents, some from the one that "
        "leaks most to the one that leaks least."
    )
    widest = [[risk for risk in risks if risk.edits == risks[-1].edits] for risks in works]
    return [Drawing("risk", caption, risk_by_queries(widest), "risk", is_wide=True)]
