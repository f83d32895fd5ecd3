"""How scans are shown: one in detail or several compared, on the page with the shaded text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from byrote.errors import ConfigError
from byrote.report.comparison import (
    compare_rows,
    compare_runs,
    comparison_sentences,
    paired_cells,
    paired_differences,
)
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Reader, Rows, Section
from byrote.report.gallery import draw_all
from byrote.report.groups import copies_rows, groups_cells, groups_rows
from byrote.report.membership import membership_content, separation_cells, separation_rows
from byrote.report.model_card import model_card
from byrote.report.posthoc import posthoc_cells, posthoc_rows
from byrote.report.queries import query_cells, query_numbers
from byrote.report.reader import continuation_blocks, document_list, page_data, script_safe_json, strongest_passages
from byrote.report.risk import risk_cells, risk_rows
from byrote.report.summary import certainty, facts, headline, notices, question, rate_cards
from byrote.report.sweeps import sweep_cells, sweep_rows
from byrote.report.tables import (
    DocumentRates,
    books_by_model,
    document_rates,
    documents_rows,
    models_cells,
    rates_cells,
    rates_numbers,
    rates_rows,
)
from byrote.report.terminal import document_strips
from byrote.report.view import (
    FROM_CONTROL,
    RunView,
    at_one_threshold,
    load_view,
    manifest_text,
    with_distinct_labels,
    with_threshold,
)
from byrote.report.words import listed


def read(runs: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    if asked.threshold is not None and asked.threshold.startswith(FROM_CONTROL) and len(runs) > 1:
        raise ConfigError(
            f"threshold is {asked.threshold}, but {len(runs)} runs have controls of their own; choose τ from one "
            "with byrote show, and give the number."
        )
    return scan_content([with_threshold(load_view(run), asked.threshold) for run in runs], asked)


def scan_content(given: Sequence[RunView], asked: Asked = DEFAULTS) -> Content:
    """One run in detail, or several at the largest τ of theirs. Runs without probabilities have membership scores."""
    views = at_one_threshold(with_distinct_labels(given))
    written = views[0].manifest.get("written_at")
    names = [view.path.name if len(views) == 1 else f"{view.label}: {view.path.name}" for view in views]
    common = Content(
        kind="scan",
        label=listed([view.label for view in views]),
        headline="",
        date=written[:10] if isinstance(written, str) else None,
        facts=facts(views),
        notices=tuple(notices(views)),
        manifests=tuple((name, manifest_text(view)) for name, view in zip(names, views, strict=True)),
    )
    if not all(view.population.has_masses for view in views):
        return membership_content(common, views)
    common = replace(common, headline=headline(views), question=question(views[0]), cards=rate_cards(views))
    return _one(common, views[0], asked) if len(views) == 1 else _several(common, views)


def _one(common: Content, view: RunView, asked: Asked) -> Content:
    tables = [rates_cells([view]), *groups_cells(view), *_policies_and_metrics([view]), *separation_cells([view])]
    numbers = rates_numbers(view) | {"membership": separation_rows([view])}
    if asked.queries:
        tables = [*query_cells(view, asked.queries, asked.probabilities), *tables]
        numbers["queries"] = query_numbers(view, asked.queries, asked.probabilities)
    documents = cache(lambda: {view.label: document_rates(view)})
    return replace(
        common,
        tables=tuple(tables),
        sentences=certainty(view),
        strips=lambda: document_strips(view),
        draw=lambda: draw_all([view], None),
        data=lambda: _data([view], documents()),
        reader=lambda: _reader([view], documents()),
        numbers={view.label: numbers},
    )


def _several(common: Content, views: Sequence[RunView]) -> Content:
    comparison = compare_runs(views)
    paired = paired_differences(comparison, views[0].threshold)
    documents = {view.label: document_rates(view) for view in views}
    return replace(
        common,
        notices=(*filter(None, [comparison.reason]), *common.notices),
        tables=(rates_cells(views), *paired_cells(paired), books_by_model(documents), *separation_cells(views)),
        sentences=tuple(comparison_sentences(comparison, paired, views[0].threshold)),
        draw=lambda: draw_all(views, comparison),
        data=lambda: {"compare": compare_rows(paired)} | _data(views, documents),
        reader=lambda: replace(
            _reader(views, documents),
            tables=(*_policies_and_metrics(views), *risk_cells(views)),
            models=models_cells(views),
            certainty=certainty(views[0]),
            certainty_of=views[0].label,
        ),
        numbers={view.label: rates_numbers(view) | {"membership": separation_rows([view])} for view in views},
    )


def _policies_and_metrics(views: Sequence[RunView]) -> list[Cells]:
    return [table for view in views for table in (*sweep_cells(view), *posthoc_cells(view))]


def _reader(views: Sequence[RunView], documents: Mapping[str, Sequence[DocumentRates]]) -> Reader:
    return Reader(
        data=script_safe_json(page_data(views)),
        continuations=tuple(
            (f"continuations-{run}-{number}", block)
            for run, view in enumerate(views)
            for number, block in enumerate(continuation_blocks(view))
            if block
        ),
        strongest=strongest_passages(views[0]),
        documents=tuple(document_list(label, rows) for label, rows in documents.items()),
        model_cards=tuple(map(model_card, views)),
        tables=risk_cells(views),
    )


def _data(views: Sequence[RunView], documents: Mapping[str, Sequence[DocumentRates]]) -> dict[str, Rows]:
    return {
        "rates": rates_rows(views),
        "documents": documents_rows(documents),
        "copies": copies_rows(views),
        "groups": groups_rows(views),
        "policies": sweep_rows(views),
        "posthoc": posthoc_rows(views),
        "membership": separation_rows(views),
        "risk": risk_rows(views),
    }


SECTION = Section(read)
