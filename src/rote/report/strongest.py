"""The strongest passages with what the model says instead: on paper, where nothing can be clicked."""

import difflib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from rote.report.rates import split_rows
from rote.report.view import Document, RunView
from rote.report.words import integer, plural, probability
from rote.types import Split

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
