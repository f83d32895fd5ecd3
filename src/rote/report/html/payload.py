"""The data of a run as the page carries it: typed arrays in base64, continuations in compressed blocks.

Character positions are converted from code points (Python) to UTF-16 units (JavaScript). Masses stay float64, so that
a count made in the browser is the count made in Python.
"""

import base64
import gzip
import json
import re
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from rote.report.rates import interval_grid
from rote.report.view import Document, RunView
from rote.types import StopReason

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
