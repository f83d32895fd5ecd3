"""The strongest passages with what the model says instead: on paper, where nothing can be clicked."""

import base64
import difflib
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from byrote.report.comparison import Comparison, comparison_sentences, paired_cells, paired_differences
from byrote.report.content import Cells
from byrote.report.membership import separation_cells
from byrote.report.model_card import model_card
from byrote.report.posthoc import posthoc_cells
from byrote.report.rates import Criterion, interval_grid, rate_for, rates_by_criterion, split_rows, threshold_grid
from byrote.report.risk import risk_cells
from byrote.report.summary import summarise
from byrote.report.sweeps import sweep_cells
from byrote.report.tables import books_by_model, count_of, document_row
from byrote.report.templates import FOLDER, GLOSSARY, rendered
from byrote.report.view import Document, RunView, manifest_text
from byrote.report.words import integer, percent, plural, probability
from byrote.types import Split, StopReason

PASSAGES = 10
PREFIX_CHARACTERS = 160


class Piece(NamedTuple):
    """A stretch of a comparison: in both texts, in the target alone, or in the continuation alone."""

    text: str
    kind: str


class StrongPassage(NamedTuple):
    place: str
    numbers: str
    prefix: str
    pieces: tuple[Piece, ...]
    """The target and the most likely continuation that differs from it, as one text with differences marked."""
    note: str


def strongest_passages(view: RunView) -> tuple[StrongPassage, ...]:
    """One window of every extractable passage, the one with the largest mass; strongest passages first."""
    continuations = _likeliest(view)
    return tuple(_passage(view, row, continuations) for row in _peaks(view)[:PASSAGES])


def _peaks(view: RunView) -> list[int]:
    """The strongest window of each passage (overlapping extractable targets joined), largest mass first."""
    population, peaks = view.population, []
    mass = population.mass(population.edit_budget)
    wanted = (mass >= view.threshold) & split_rows(population, Split.TARGET)
    for document in view.documents:
        end, best = -1, -1
        for row in np.flatnonzero(wanted & view.rows_of(document)).tolist():
            if population.suffix_char_start[row] > end:
                peaks += [best] if best >= 0 else []
                best = row
            best = row if mass[row] > mass[best] else best
            end = max(end, int(population.char_end[row]))
        peaks += [best] if best >= 0 else []
    return sorted(peaks, key=lambda row: -mass[row])


def _likeliest(view: RunView) -> Mapping[str, tuple[str, float, int]]:
    """Window → text, probability and distance of its most likely continuation that is not the target itself."""
    if view.continuations is None or view.continuations.is_empty():
        return {}
    other = view.continuations.filter((pl.col("distance") > 0) & pl.col("log_p").is_finite())
    first = other.sort("log_p", descending=True, maintain_order=True).unique("window_id", keep="first")
    columns = first.select("window_id", "text", "log_p", "distance").iter_rows()
    return {window: (text, float(np.exp(log_p)), distance) for window, text, log_p, distance in columns}


def _passage(view: RunView, row: int, continuations: Mapping[str, tuple[str, float, int]]) -> StrongPassage:
    population = view.population
    document = next(one for one in view.documents if one.first_row <= row < one.first_row + one.windows)
    start, end = int(population.suffix_char_start[row]), int(population.char_end[row])
    mass, exact = population.mass(population.edit_budget)[row], population.verbatim()[row]
    prefix, target = _texts(document, int(view.prefix_starts[row]), start, end)
    found = continuations.get(str(population.window_id[row]))
    numbers = f"exact {probability(float(exact))}"
    if population.mass_lower is not None:
        numbers += f", within {plural(population.edit_budget, 'edit')} at least {probability(float(mass))}"
    pieces = (Piece(target, "same"),) if found is None else tuple(compared(target, found[0]))
    note = "" if found is None else f"{plural(found[2], 'edit')} away, probability {probability(found[1])}"
    return StrongPassage(f"{document.name}, characters {integer(start)}–{integer(end)}", numbers, prefix, pieces, note)


def _texts(document: Document, start: int, middle: int, end: int) -> tuple[str, str]:
    if document.text is None:
        return "", "The run did not keep its texts."
    return document.text[max(start, middle - PREFIX_CHARACTERS) : middle], document.text[middle:end]


def compared(target: str, continuation: str) -> Iterator[Piece]:
    """Both texts as one, word by word: what is in both, what only the target has, what only the model says."""
    first, second = _words(target), _words(continuation)
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    for tag, low, high, other_low, other_high in matcher.get_opcodes():
        if tag == "equal":
            yield Piece("".join(first[low:high]), "same")
            continue
        if high > low:
            yield Piece("".join(first[low:high]), "target")
        if other_high > other_low:
            yield Piece("".join(second[other_low:other_high]), "model")


def _words(text: str) -> list[str]:
    """Words with the white space after them: joined they are the text again."""
    words: list[str] = []
    for character in text:
        if not words or (words[-1][-1].isspace() and not character.isspace()):
            words.append(character)
        else:
            words[-1] += character
    return words


CONTINUATION_BLOCK = 256
"""Windows per compressed block: small enough to open at a click, large enough to compress well."""
LARGEST_RANK = 255
STOP_CODES = {reason.value: code for code, reason in enumerate(StopReason)}

TextIndex = dict[tuple[str, str], int]
"""(split, document name) → position in the page's list of texts."""

_UNSAFE_IN_SCRIPT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def script_safe_json(value: object) -> str:
    """JSON that no text inside it can break out of a script element with: `<`, `>` and `&` are escaped.

    Lone surrogates are escaped too, because UTF-8 cannot carry them.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE_IN_SCRIPT.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def packed(values: ArrayLike, dtype: str) -> str:
    """Little-endian bytes of an array, base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def utf16_offsets(text: str) -> NDArray[np.int64] | None:
    """[characters + 1]: where each code point starts in UTF-16; None when both count alike (no astral character)."""
    if not text or max(text) <= "\uffff":
        return None
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.concatenate([[0], np.cumsum(1 + (points > 0xFFFF))]).astype(np.int64)


def run_payload(view: RunView, *, thresholds: tuple[float, ...], text_index: TextIndex) -> dict[str, Any]:
    """Everything the page needs of one run but the continuations; `text_index` says where each document's text is."""
    population = view.population
    return {
        "label": view.label,
        "threshold": view.run_threshold,
        "editBudget": population.edit_budget,
        "hasNear": population.mass_lower is not None,
        "suffixTokens": view.window_tokens[1],
        "documents": [_document_entry(document, text_index) for document in view.documents],
        "windows": _windows(view),
        "intervals": packed(np.nan_to_num(interval_grid(population, thresholds), nan=-1.0), "f8"),
        "continuationBlock": CONTINUATION_BLOCK,
    }


def _document_entry(document: Document, text_index: TextIndex) -> dict[str, Any]:
    return {
        "name": document.name,
        "split": document.split,
        "copies": document.copies,
        "isOtherEdition": document.is_other_edition,
        "text": text_index.get((document.split, document.name)),
        "first": document.first_row,
        "count": document.windows,
    }


def _windows(view: RunView) -> dict[str, Any]:
    population, results = view.population, view.results
    starts, suffixes, ends = _positions(view)
    windows: dict[str, Any] = {
        "count": len(population),
        "start": packed(starts, "u4"),
        "suffix": packed(suffixes, "u4"),
        "end": packed(ends, "u4"),
        "verbatim": packed(population.verbatim(), "f8"),
        "impossible": packed(population.is_impossible(), "u1"),
        "mass": [packed(population.mass(edits), "f8") for edits in range(population.edit_budget + 1)],
    }
    if population.mass_upper is not None:
        windows["upper"] = [packed(column, "f8") for column in population.mass_upper.T]
    if population.greedy_distance is not None:
        windows["greedy"] = packed(np.minimum(population.greedy_distance, 65535), "u2")
    if not population.is_rated.all():
        windows["rated"] = packed(population.is_rated, "u1")
    if "token_evals" in results.columns:
        windows["evaluations"] = packed(results["token_evals"].to_numpy(), "u4")
    if {"mass_estimate", "mass_low", "mass_high"} <= set(results.columns):
        names = (("estimate", "mass_estimate"), ("estimateLow", "mass_low"), ("estimateHigh", "mass_high"))
        for name, column in names:
            # Absent and undefined travel as −1: JSON and the typed arrays have no None.
            windows[name] = packed(results[column].fill_null(-1.0).fill_nan(-1.0).to_numpy(), "f8")
    if "stop_reason" in results.columns:
        codes = results["stop_reason"].cast(pl.String).replace_strict(STOP_CODES, default=255, return_dtype=pl.UInt8)
        windows["stop"] = packed(codes.to_numpy(), "u1")
    if "suffix_ranks" in results.columns and results["suffix_ranks"].list.len().n_unique() == 1:
        ranks = results["suffix_ranks"].explode(empty_as_null=False).to_numpy()
        windows["ranks"] = packed(np.minimum(ranks, LARGEST_RANK), "u1")
    return windows


def _positions(view: RunView) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Prefix starts, suffix starts and ends in UTF-16 units of their document's text."""
    population = view.population
    columns = [view.prefix_starts.copy(), population.suffix_char_start.copy(), population.char_end.copy()]
    for document in view.documents:
        offsets = None if document.text is None else utf16_offsets(document.text)
        if offsets is not None:
            rows = view.rows_of(document)
            for column in columns:
                column[rows] = offsets[np.minimum(column[rows], len(offsets) - 1)]
    return columns[0], columns[1], columns[2]


def continuation_blocks(view: RunView) -> list[str]:
    """One base64 gzip block per CONTINUATION_BLOCK windows: for each window a list of [text, log p, distance].

    Blocks without any continuation are empty strings.
    """
    if view.continuations is None or view.continuations.is_empty():
        return []
    by_window: dict[str, list[list[Any]]] = {}
    ordered = view.continuations.filter(pl.col("log_p").is_finite()).sort("log_p", descending=True, maintain_order=True)
    for window_id, text, log_p, distance in ordered.select("window_id", "text", "log_p", "distance").iter_rows():
        by_window.setdefault(window_id, []).append([text, log_p, distance])
    blocks = []
    for first in range(0, len(view.population), CONTINUATION_BLOCK):
        rows = [by_window.get(name, []) for name in view.population.window_id[first : first + CONTINUATION_BLOCK]]
        blocks.append(_compressed(rows) if any(rows) else "")
    return blocks


def _compressed(rows: list[list[list[Any]]]) -> str:
    # JSON escapes keep lone surrogates; mtime 0 keeps the page the same byte for byte when nothing changed.
    return base64.b64encode(gzip.compress(json.dumps(rows).encode("ascii"), mtime=0)).decode()


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
    "A language model gives every continuation of a text a probability. byrote computes the probability of the true "
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
