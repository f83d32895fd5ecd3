"""The page: one HTML file that carries its style, script, data and figures, and asks the network for nothing."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from markupsafe import Markup

from rote.report.comparison import Comparison, comparison_sentences
from rote.report.content import Cells
from rote.report.html.glossary import GLOSSARY
from rote.report.html.payload import STOP_CODES, TextIndex, continuation_blocks, run_payload, script_safe_json
from rote.report.html.templates import FOLDER, rendered
from rote.report.model_card import model_card
from rote.report.paired import paired_cells, paired_differences
from rote.report.posthoc import posthoc_cells
from rote.report.rates import Criterion, rate_for, rates_by_criterion, threshold_grid
from rote.report.risk_cells import risk_cells
from rote.report.separation import separation_cells
from rote.report.strongest import strongest_passages
from rote.report.summary import summarise
from rote.report.sweeps import sweep_cells
from rote.report.tables import books_by_model, count_of, document_row
from rote.report.view import RunView, manifest_text
from rote.report.words import integer, percent
from rote.types import Split

LISTED_DOCUMENTS = 300
PRINTED_DOCUMENTS = 40
COMPARED_ROWS = 30
PRINTED_ROWS = 15
LISTED_IN_MANIFEST = 50
STOP_WORDS = {
    "finished": "Searched to the last token.",
    "beam_empty": "The search ended early: nothing within the edit budget was left.",
    "below_threshold": "The search ended early: τ could no longer be reached.",
    "screened": "Not searched: the screen found it unlikely, so only the exact probability is known.",
}
METHOD_NOTES = (
    "A language model gives every continuation of a text a probability. rote computes the probability of the true "
    "continuation exactly, by feeding the text to the model, and adds up the probabilities of the continuations that "
    "differ from it by a few tokens, found by a beam search that keeps only paths still within the edit budget.",
    "Everything found is a lower bound, everything not explored goes into an upper bound. Neither depends on chance. "
    "Shares over many windows carry a confidence interval, because other passages could have been chosen.",
)


@dataclass(frozen=True)
class PageFigure:
    """A figure as the page shows it; `svg` is the drawing itself."""

    name: str
    caption: str
    svg: bytes
    anchor: str | None = None
    is_wide: bool = False

    @property
    def source(self) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


def render_page(views: Sequence[RunView], figures: Sequence[PageFigure], comparison: Comparison | None) -> str:
    """The whole page as text."""
    script = page_script()
    warnings = [comparison.reason] if comparison is not None and comparison.reason else []
    summary = summarise(views, warnings)
    return rendered(
        "page.html",
        trims=False,
        title=summary.title,
        summary=summary,
        runs=views,
        figures=figures,
        tables=further_tables(views),
        strongest=strongest_passages(views[0]),
        comparison=comparison_context(views, comparison),
        documents=[documents_context(index, view) for index, view in enumerate(views)],
        printed_documents=PRINTED_DOCUMENTS,
        compared_rows=COMPARED_ROWS,
        printed_rows=PRINTED_ROWS,
        glossary=GLOSSARY,
        glossary_short={entry.anchor: entry.short for entry in GLOSSARY},
        method_notes=METHOD_NOTES,
        manifests=[
            {
                "label": view.label,
                "path": view.path.name,
                "run_id": view.manifest.get("run_id", "unfinished"),
                "text": manifest_text(view, most_documents=LISTED_IN_MANIFEST),
            }
            for view in views
        ],
        cards=[model_card(view) for view in views],
        script=Markup(script),
        script_hash=Markup(script_hash(script)),
        data=Markup(script_safe_json(page_data(views))),
        continuations=[
            {"id": f"continuations-{run}-{index}", "data": block}
            for run, view in enumerate(views)
            for index, block in enumerate(continuation_blocks(view))
            if block
        ],
    )


def further_tables(views: Sequence[RunView]) -> list[Cells]:
    """What was measured beside the rates: other policies, other metrics, membership scores, the risk of works."""
    own = [table for view in views for table in (*sweep_cells(view), *posthoc_cells(view))]
    return [*own, *separation_cells(views), *risk_cells(views)]


def page_script() -> str:
    """All script files in order, in one function scope."""
    parts = [path.read_text(encoding="utf-8") for path in sorted((FOLDER / "script").glob("*.js"))]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def script_hash(script: str) -> str:
    """What the content security policy must name for the browser to run exactly this script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def page_data(views: Sequence[RunView]) -> dict[str, Any]:
    """The data block: texts once each, thresholds, and every run's arrays."""
    thresholds = threshold_grid(*(view.threshold for view in views))
    texts: list[str] = []
    position: dict[str, int] = {}
    runs = []
    for view in views:
        index: TextIndex = {}
        for document in view.documents:
            if document.text is not None:
                if document.text not in position:
                    position[document.text] = len(texts)
                    texts.append(document.text)
                index[(document.split, document.name)] = position[document.text]
        runs.append(run_payload(view, thresholds=thresholds, text_index=index))
    return {
        "thresholds": thresholds,
        "thresholdIndex": thresholds.index(views[0].threshold),
        "texts": texts,
        "runs": runs,
        "stopReasons": [STOP_WORDS[reason] for reason in STOP_CODES],
        "definitions": {entry.anchor: entry.short for entry in GLOSSARY},
    }


def comparison_context(views: Sequence[RunView], comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    return {
        "sentences": comparison_sentences(comparison, views[0].threshold),
        "tables": [*paired_cells(paired_differences(comparison, views[0].threshold)), books_by_model(views)],
        "heads": ["Model", "Windows", "τ", "Greedy", "Verbatim", "Near-verbatim", "Settings that differ"],
        "rows": [
            [
                view.label,
                integer(len(view.population)),
                f"{view.threshold:g}",
                *target_rates(view),
                differing_settings(view, views),
            ]
            for view in views
        ],
    }


def target_rates(view: RunView) -> list[str]:
    """Greedy exact, verbatim and near-verbatim share of the target windows, with counts."""
    rates = rates_by_criterion(view.population, view.threshold)
    wanted = [(Criterion.GREEDY, 0), (Criterion.VERBATIM, None), (Criterion.NEAR, view.population.edit_budget)]
    found = [rate_for(rates, criterion, split=Split.TARGET, edits=edits) for criterion, edits in wanted]
    return ["–" if entry is None else f"{percent(entry.rate.value)} ({integer(entry.hits)})" for entry in found]


def differing_settings(view: RunView, views: Sequence[RunView]) -> str:
    """The configuration entries in which this run differs from another of the runs."""
    keys = sorted({key for each in views for key in each.config})
    keys = [key for key in keys if key not in ("model", "out")]
    different = [key for key in keys if len({repr(each.config.get(key)) for each in views}) > 1]
    return ", ".join(f"{key} {view.config.get(key)}" for key in different) or "none"


def documents_context(index: int, view: RunView) -> dict[str, Any]:
    """The rows of the documents table, strongest first; a long list is cut and says so."""

    rows = []
    for position, document in enumerate(view.documents):
        values = document_row(view, document)
        windows, covered = int(str(values["windows"])), values["covered"]
        rows.append(
            {
                "index": position,
                "name": document.name,
                "split": document.split,
                "copies": "–" if document.copies is None else integer(document.copies),
                "order": (document.split == "control", -float(str(values["near"] or values["verbatim"] or 0))),
                "covered": "–" if covered is None else percent(float(str(covered))),
                **{key: count_of(values[key], windows) for key in ("greedy", "verbatim", "near")},
            }
        )
    rows.sort(key=lambda row: cast("tuple[bool, float]", row["order"]))
    return {
        "label": view.label,
        "index": index,
        "rows": rows[:LISTED_DOCUMENTS],
        "left_out": more_documents(len(rows) - LISTED_DOCUMENTS),
        "left_out_of_print": more_documents(len(rows) - PRINTED_DOCUMENTS),
    }


def more_documents(count: int) -> str | None:
    return f"{integer(count)} more documents are in tables/documents.csv." if count > 0 else None
