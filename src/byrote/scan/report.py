"""How scans are shown: one in detail or several compared, on the page with the shaded text.

Of one run the gallery has all of its own figures, of several the models over each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from byrote.corpus.spans import mask_identifiers, mask_whole
from byrote.errors import ConfigError
from byrote.report import tables
from byrote.report.analysis import comparison, groups, membership, passages, policies, prompts, queries, risk, series
from byrote.report.analysis.rates import Criterion
from byrote.report.analysis.records import nearly_cells, nearly_rows
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Reader, Rows, Section
from byrote.report.figures import scan as figures
from byrote.report.reader import continuation_blocks, page_data, ranked_documents, script_safe_json, strongest_passages
from byrote.report.summary import certainty, facts, headline, model_card, notices, question, rate_cards
from byrote.report.terminal import document_strips
from byrote.report.view import (
    FROM_CONTROL,
    RunView,
    ViewedDocument,
    at_epsilon,
    at_one_threshold,
    load_view,
    manifest_text,
    with_distinct_labels,
    with_threshold,
)
from byrote.report.words import listed
from byrote.stats.population import Floats, Population, character_maxima
from byrote.types import Split

BOOKS_DRAWN = 3
SHORT_DOCUMENT = 4_000
"""Characters below which documents are drawn end to end; the page reads them together by the same rule."""
FEWEST_TOGETHER = 4


def draw_all(views: Sequence[RunView], compared: comparison.RunComparison | None) -> list[Drawing]:
    """Every figure the runs have data for."""
    steps = None if compared is None else series.series_of(views, compared)
    if steps is not None:
        return [*series.series_drawings(steps), *book_drawings(views[-1:])]
    together = [*book_drawings(views), *groups.copies_drawings(views), *groups.group_drawings(views)]
    if compared is not None:
        return [*figures.comparison_drawings(views, compared), *together]
    of_one = (*membership.membership_drawings(views), *risk.risk_drawings(views))
    return [*run_drawings(views[0]), *together, *of_one]


def run_drawings(view: RunView) -> Iterator[Drawing]:
    population, threshold = view.population, view.threshold
    # Of a run that has only controls, these are drawn.
    targets = population if population.is_control.all() else population.select(~population.is_control)
    if any(entry.criterion != Criterion.VERBATIM for entry in view.rates):  # that one is the same at every ε
        yield figures.rates_by_edits([view])
    if population.mass_upper is not None:
        yield figures.verdicts_by_edits(view.rates, threshold=threshold)
    yield queries.query_drawing(view, targets)
    if targets.mass_lower is not None:
        budget = targets.edit_budget
        verbatim, mass, is_impossible = targets.verbatim(), targets.mass(budget), targets.is_impossible()
        yield figures.mass_scatter(verbatim, mass, is_impossible=is_impossible, threshold=threshold, edits=budget)
        yield figures.gain_curves([(view.label, verbatim, mass)], threshold=threshold)
        yield figures.shell_heat_map(targets.mass_lower, threshold=threshold)
        yield figures.shell_violins(targets.mass_lower, threshold=threshold)
    yield from passages.passage_drawings(view)
    yield from policies.policy_drawings(view)
    yield from sweep_drawings(view)
    if "suffix_ranks" in view.results.columns:
        # Of the target window with the largest gain: where the exact words fail and near ones do not.
        gain = population.mass(population.edit_budget) - population.verbatim()
        row = int(np.argmax(np.where(population.is_control, -1.0, gain)))
        top_k = view.config.get("top_k")
        ranks = view.results["suffix_ranks"][row].to_list()
        yield figures.token_ranks(
            ranks, kept=top_k if isinstance(top_k, int) else None, window_id=population.window_id[row]
        )


def sweep_drawings(view: RunView) -> Iterator[Drawing]:
    """A figure per setting that the sweep varies alone, and one with the (n, p) curves of every policy."""
    for setting, drawn in queries.sweep_series(view).items():
        caption = (
            f"Share of windows with verbatim probability at least τ, by {setting}, with 95 % intervals; all policies "
            "from one pass."
        )
        figure = queries.policy_sweep(drawn, setting=setting, is_log=setting == "top-k")
        yield Drawing(f"sweep-{setting.split()[0]}", caption, figure, "verbatim")
    swept = [one for one in queries.policy_rates(view) if one.split is Split.TARGET]
    if swept:
        caption = (
            "Share of target windows that come out word for word within n queries with probability p, for every "
            "policy of the sweep, with 95 % intervals."
        )
        yield Drawing("sweep-queries", caption, queries.policy_queries(swept), "queries", is_wide=True)


def book_drawings(views: Sequence[RunView]) -> Iterator[Drawing]:
    """Heat maps of the strongest target documents, every run's strips under each other; short ones as one text."""
    first = views[0]
    targets = [document for document in first.documents if document.split == Split.TARGET and document.characters]
    if len(targets) >= FEWEST_TOGETHER and np.mean([document.characters for document in targets]) < SHORT_DOCUMENT:
        by_copies = ", most copies in training first" if any(document.copies for document in targets) else ""
        yield _heat_map(views, targets, title=f"All {len(targets)} target texts{by_copies}", file="texts")
        return

    def strength(document: ViewedDocument) -> float:
        part = first.population.select(first.rows_of(document))
        return float(np.mean(part.mass(part.edit_budget) >= first.threshold))

    strongest = sorted(targets, key=strength, reverse=True)[:BOOKS_DRAWN]
    for number, document in enumerate(strongest, start=1):
        yield _heat_map(views, [document], title=document.name, file=f"book-{number}")


def _heat_map(views: Sequence[RunView], documents: Sequence[ViewedDocument], *, title: str, file: str) -> Drawing:
    """One heat map of `documents`, end to end; a run that lacks one of them leaves it uncovered."""
    rows: list[tuple[str, Floats]] = []
    for view in views:
        prefix = f"{view.label}: " if len(views) > 1 else ""
        own = {(document.split, document.name): view.rows_of(document) for document in view.documents}
        none = np.zeros(len(view.population), dtype=np.bool_)
        exact, near = [], []
        for document in documents:
            part = view.population.select(own.get((document.split, document.name), none))
            spans, length = (part.suffix_char_start, part.char_end), document.characters or 0
            exact.append(character_maxima(*spans, part.verbatim(), length=length))
            near.append(character_maxima(*spans, part.mass(part.edit_budget), length=length))
        rows.append((f"{prefix}exact", np.concatenate(exact)))
        if view.population.mass_lower is not None:
            rows.append((f"{prefix}ε ≤ {view.population.edit_budget}", np.concatenate(near)))
    return figures.book_heat_map(rows, threshold=views[0].threshold, title=title, file=file)


def read(runs: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    if asked.threshold is not None and asked.threshold.startswith(FROM_CONTROL) and len(runs) > 1:
        raise ConfigError(
            f"threshold is {asked.threshold}, but {len(runs)} runs have controls of their own; choose τ from one "
            "with byrote show, and give the number."
        )
    views = [at_epsilon(load_view(run), asked.epsilon) for run in runs]
    return scan_content([with_threshold(view, asked.threshold) for view in views], asked)


def scan_content(given: Sequence[RunView], asked: Asked = DEFAULTS) -> Content:
    """One run in detail, or several at the largest τ of theirs. Runs without probabilities have membership scores."""
    views = at_one_threshold(series.by_steps(with_distinct_labels(given if asked.reveal else list(map(masked, given)))))
    written = views[0].manifest.get("written_at")
    names = [view.path.name if len(views) == 1 else f"{view.label}: {view.path.name}" for view in views]
    common = Content(
        kind="scan",
        label=listed([view.label for view in views]),
        headline="",
        date=written[:10] if isinstance(written, str) else None,
        facts=facts(views),
        notices=tuple(notices(views, is_masked=not asked.reveal)),
        manifests=tuple((name, manifest_text(view)) for name, view in zip(names, views, strict=True)),
    )
    if not all(view.population.has_masses for view in views):
        return membership.membership_content(common, views)
    common = replace(common, headline=headline(views), question=question(views[0]), cards=rate_cards(views))
    return _one(common, views[0], asked) if len(views) == 1 else _several(common, views)


def _one(common: Content, view: RunView, asked: Asked) -> Content:
    shown = [
        tables.rates_cells([view]), *groups.copies_cells(view), *nearly_cells(view), *groups.groups_cells(view),
        *_further_cells(view), *membership.separation_cells([view]),
    ]  # fmt: skip
    numbers = _numbers(view)
    if asked.queries:
        shown = [*queries.query_cells(view, asked.queries, asked.probabilities), *shown]
        numbers["queries"] = queries.query_numbers(view, asked.queries, asked.probabilities)
    documents = cache(lambda: {view.label: tables.document_rates(view)})
    return replace(
        common,
        tables=tuple(shown),
        sentences=certainty(view),
        strips=lambda: document_strips(view),
        draw=lambda: draw_all([view], None),
        data=lambda: _data([view], documents()),
        reader=lambda: _reader([view], documents()),
        numbers={view.label: numbers},
    )


def _further_cells(view: RunView) -> list[Cells]:
    """What a run measured beyond its headline rates."""
    return [
        *passages.passage_cells(view),
        *policies.policy_cells(view),
        *queries.sweep_cells(view),
        *tables.posthoc_cells(view),
    ]


def _numbers(view: RunView) -> dict[str, Any]:
    return tables.rates_numbers(view) | {"membership": membership.separation_rows([view])}


def _several(common: Content, views: Sequence[RunView]) -> Content:
    compared = comparison.compare_runs(views)
    steps = series.series_of(views, compared)
    paired = comparison.paired_differences(compared, views[0].threshold, neighbours_only=steps is not None)
    by_step = () if steps is None else (series.series_cells(steps),)
    rows = {} if steps is None else {"series": series.series_rows(steps), "steps-by-window": series.window_rows(steps)}
    documents = {view.label: tables.document_rates(view) for view in views}
    tried = prompts.prompt_rates(views, compared)
    by_model = (*comparison.paired_cells(paired), tables.books_by_model(documents), *membership.separation_cells(views))
    side_by_side = (*by_step, *prompts.prompt_cells(tried), *by_model)
    sentences = comparison.comparison_sentences(compared, paired, views[0].threshold)
    return replace(
        common,
        notices=(*filter(None, [compared.reason]), *common.notices),
        tables=(tables.rates_cells(views), *side_by_side),
        sentences=(
            *(() if steps is None else (series.series_sentence(steps),)),
            *prompts.prompt_sentences(tried),
            *sentences,
        ),
        draw=lambda: [*prompts.prompt_drawings(tried, views[0].threshold), *draw_all(views, compared)],
        data=lambda: {
            "compare": comparison.compare_rows(paired),
            "prompts": prompts.prompt_rows(tried),
            **rows,
            **_data(views, documents, compared.aligned),
        },
        reader=lambda: replace(
            _reader(views, documents),
            tables=(*chain.from_iterable(map(_further_cells, views)), *risk.risk_cells(views)),
            compared=(tables.models_cells(views), *side_by_side),
            certainty=certainty(views[0]),
            certainty_of=views[0].label,
        ),
        numbers={view.label: _numbers(view) for view in views},
    )


def _reader(views: Sequence[RunView], documents: Mapping[str, Sequence[tables.DocumentRates]]) -> Reader:
    return Reader(
        data=script_safe_json(page_data(views)),
        continuations=tuple(
            (f"continuations-{run}-{number}", block)
            for run, view in enumerate(views)
            for number, block in enumerate(continuation_blocks(view))
            if block
        ),
        strongest=strongest_passages(views[0]),
        followed=passages.passages_found(views[0]),
        documents={label: ranked_documents(rows) for label, rows in documents.items()},
        model_cards=tuple(map(model_card, views)),
        tables=risk.risk_cells(views),
    )


def _data(
    views: Sequence[RunView],
    documents: Mapping[str, Sequence[tables.DocumentRates]],
    aligned: Sequence[Population] | None = None,
) -> dict[str, Rows]:
    return {
        "rates": tables.rates_rows(views),
        "sets": comparison.set_rows(views, aligned),
        "documents": [{"run": label, **row._asdict()} for label, own in documents.items() for row in own],
        "copies": groups.copies_rows(views),
        "groups": groups.groups_rows(views),
        "only-nearly": nearly_rows(views),
        "policies": queries.sweep_rows(views),
        "settings": policies.policy_rows(views),
        "passages": passages.passage_rows(views),
        "posthoc": tables.posthoc_rows(views),
        "membership": membership.separation_rows(views),
        "risk": risk.risk_rows(views),
    }


def masked(view: RunView) -> RunView:
    """A view of records with identifiers masked in texts and continuations; suffixes that have a kind are masked whole.
    Every character stays in its place. A view of texts as it is."""
    if not view.is_records:
        return view
    secret = [kind is not None for kind in view.results["kind"]]
    documents, before = [], {}
    for document in view.documents:
        if document.text is None:
            documents.append(document)
            continue
        text = list(mask_identifiers(document.text))
        for row in range(document.first_row, document.first_row + document.windows):
            start, end = int(view.population.suffix_char_start[row]), int(view.population.char_end[row])
            before[view.population.window_id[row]] = None if secret[row] else document.text[:start]
            if secret[row]:
                text[start:end] = mask_whole(document.text[start:end])
        documents.append(replace(document, text="".join(text)))
    found = view.continuations
    if found is not None:
        texts = [
            mask_whole(text) if (stands := before.get(name)) is None else mask_identifiers(text, before=stands)
            for name, text in found.select("window_id", "text").iter_rows()
        ]
        found = found.with_columns(text=pl.Series(texts, dtype=pl.String))
    return replace(view, documents=tuple(documents), continuations=found, unmasked=view)


SECTION = Section(read)
