"""The shaded text of a page of scans: the data its script reads, the strongest passages for print, the documents."""

import base64
import difflib
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from byrote.normal_form import normalised
from byrote.report.analysis.rates import interval_grid, split_rows, threshold_grid
from byrote.report.content import Rows, StrongPassage
from byrote.report.page import GLOSSARY
from byrote.report.tables import DocumentRates
from byrote.report.view import RunView
from byrote.report.words import integer, plural, probability
from byrote.types import Split, StopReason

PASSAGES = 10
PREFIX_CHARACTERS = 160
CONTINUATION_BLOCK = 256
"""Windows per compressed block: small enough to open at a click, large enough to compress well."""
LARGEST_RANK = 255
STOP_CODES = {reason.value: code for code, reason in enumerate(StopReason)}

_UNSAFE_IN_SCRIPT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
STOP_WORDS = {
    "finished": "Searched to the last token.",
    "beam_empty": "The search ended early: nothing within the edit budget was left.",
    "below_threshold": "The search ended early: τ could no longer be reached.",
    "screened": "Not searched: the screen found it unlikely, so only the exact probability is known.",
}


def page_data(views: Sequence[RunView]) -> dict[str, Any]:
    """The data block: texts once each, thresholds, and every run's arrays."""
    thresholds = threshold_grid(*(view.threshold for view in views))
    texts = list(dict.fromkeys(one.text for view in views for one in view.documents if one.text is not None))
    places = {text: place for place, text in enumerate(texts)}
    return {
        "thresholds": thresholds,
        "thresholdIndex": thresholds.index(views[0].threshold),
        "texts": texts,
        "runs": [run_payload(view, thresholds=thresholds, text_places=places) for view in views],
        "stopReasons": [STOP_WORDS[reason] for reason in STOP_CODES],
        "definitions": {entry.anchor: entry.short for entry in GLOSSARY},
    }


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


def run_payload(view: RunView, *, thresholds: tuple[float, ...], text_places: Mapping[str, int]) -> dict[str, Any]:
    """Everything the page needs of one run but the continuations; `text_places` are those of the page's texts."""
    population, intervals = view.population, interval_grid(view.population, thresholds)
    return {
        "label": view.label,
        "threshold": view.run_threshold,
        "editBudget": population.edit_budget,
        "hasNear": population.mass_lower is not None,
        "suffixTokens": int(view.results["suffix_ids"].list.len().to_numpy().max()),
        "documents": [
            {
                "name": document.name,
                "split": document.split,
                "copies": document.copies,
                "isOtherEdition": document.is_other_edition,
                "text": None if document.text is None else text_places.get(document.text),
                "first": document.first_row,
                "count": document.windows,
            }
            for document in view.documents
        ],
        "windows": _windows(view),
        "intervals": packed(np.nan_to_num(intervals if view.is_representative else intervals * np.nan, nan=-1.0), "f8"),
        "continuationBlock": CONTINUATION_BLOCK,
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
        names = {"estimate": "mass_estimate", "estimateLow": "mass_low", "estimateHigh": "mass_high"}
        for name, column in names.items():
            # Absent and undefined travel as −1: JSON and the typed arrays have no None.
            windows[name] = packed(results[column].fill_null(-1.0).fill_nan(-1.0).to_numpy(), "f8")
    if "stop_reason" in results.columns:
        codes = results["stop_reason"].cast(pl.String).replace_strict(STOP_CODES, default=255, return_dtype=pl.UInt8)
        windows["stop"] = packed(codes.to_numpy(), "u1")
    if "suffix_ranks" in results.columns and results["suffix_ranks"].list.len().n_unique() == 1:
        ranks = results["suffix_ranks"].explode(empty_as_null=False).to_numpy()
        windows["ranks"] = packed(np.minimum(ranks, LARGEST_RANK), "u1")
    return windows


def _positions(view: RunView) -> list[NDArray[np.int64]]:
    """Prefix starts, suffix starts and ends in UTF-16 units of their document's text."""
    population = view.population
    columns = [view.prefix_starts.copy(), population.suffix_char_start.copy(), population.char_end.copy()]
    for document in view.documents:
        offsets = None if document.text is None else utf16_offsets(document.text)
        if offsets is not None:
            rows = view.rows_of(document)
            for column in columns:
                column[rows] = offsets[np.minimum(column[rows], len(offsets) - 1)]
    return columns


def continuation_blocks(view: RunView) -> list[str]:
    """One base64 gzip block per CONTINUATION_BLOCK windows: for each window a list of [text, log p, distance].

    Blocks without any continuation are empty strings.
    """
    by_window = _continuations(view)
    blocks = []
    for first in range(0, len(view.population) if by_window else 0, CONTINUATION_BLOCK):
        rows = [by_window.get(name, []) for name in view.population.window_id[first : first + CONTINUATION_BLOCK]]
        # JSON escapes keep lone surrogates; mtime 0 keeps the page the same byte for byte when nothing changed.
        packed_rows = gzip.compress(json.dumps(rows).encode("ascii"), mtime=0)
        blocks.append(base64.b64encode(packed_rows).decode() if any(rows) else "")
    return blocks


def _continuations(view: RunView) -> dict[str, list[tuple[str, float, int]]]:
    """Window → text, log p and distance of its continuations, most likely first."""
    by_window: dict[str, list[tuple[str, float, int]]] = {}
    if view.continuations is not None:
        possible = view.continuations.filter(pl.col("log_p").is_finite())
        ordered = possible.sort("log_p", descending=True, maintain_order=True)
        for window_id, *found in ordered.select("window_id", "text", "log_p", "distance").iter_rows():
            by_window.setdefault(window_id, []).append((found[0], found[1], found[2]))
    return by_window


def strongest_passages(view: RunView) -> tuple[StrongPassage, ...]:
    """One window of every extractable passage, the one with the largest mass; strongest passages first."""
    continuations = _continuations(view)
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


def _passage(view: RunView, row: int, continuations: Mapping[str, list[tuple[str, float, int]]]) -> StrongPassage:
    """A window beside its most likely continuation that is not the target itself."""
    population = view.population
    document = next(one for one in view.documents if one.first_row <= row < one.first_row + one.windows)
    start, end = int(population.suffix_char_start[row]), int(population.char_end[row])
    mass, exact = population.mass(population.edit_budget)[row], population.verbatim()[row]
    prefix, target = "", "The run did not keep its texts."
    if document.text is not None:
        first = max(int(view.prefix_starts[row]), start - PREFIX_CHARACTERS)
        prefix, target = document.text[first:start], document.text[start:end]
    numbers = f"exact {probability(float(exact))}"
    if population.mass_lower is not None:
        numbers += f", within {plural(population.edit_budget, 'edit')} at least {probability(float(mass))}"
    pieces: tuple[tuple[str, str], ...] = ((target, "same"),)
    note = ""
    others = (one for one in continuations.get(population.window_id[row], ()) if one[2] > 0)
    if (found := next(others, None)) is not None:
        text, log_p, distance = found
        pieces = tuple(compared(target, text, is_text=view.is_text))
        note = f"{plural(distance, 'edit')} away, probability {probability(float(np.exp(log_p)))}"
    return StrongPassage(f"{document.name}, characters {integer(start)}–{integer(end)}", numbers, prefix, pieces, note)


def compared(target: str, continuation: str, *, is_text: bool) -> Iterator[tuple[str, str]]:
    """Both texts as one, word by word: what is in both (`same`), what only the `target` or only the `model` has.
    `is_text`: whether words that have the same normal form are the same."""
    # Words with the white space around them: joined they are the text again.
    first, second = (re.findall(r"\s*\S+\s*|\s+", text) for text in (target, continuation))
    own, other = ([normalised(word).rstrip() if is_text else word for word in words] for words in (first, second))
    matcher = difflib.SequenceMatcher(None, own, other, autojunk=False)
    for tag, low, high, other_low, other_high in matcher.get_opcodes():
        if tag == "equal":
            yield "".join(first[low:high]), "same"
            continue
        if high > low:
            yield "".join(first[low:high]), "target"
        if other_high > other_low:
            yield "".join(second[other_low:other_high]), "model"


def ranked_documents(rows: Sequence[DocumentRates]) -> Rows:
    """Targets first, strongest first."""
    placed = [{"place": place, **row._asdict()} for place, row in enumerate(rows)]
    return sorted(placed, key=lambda row: (row["split"] == Split.CONTROL, -(row["near"] or row["verbatim"] or 0.0)))
