"""Windows of two runs paired by where their targets stand in the text, whatever tokenizer or prefix cut them.

Two windows can be a pair if they are of the same document and their targets share enough characters:

    overlap = characters in both / characters in either

Pairs are taken best first, and no window is in two of them. What finds no partner is counted, not hidden.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byrote.report.analysis.rates import places_of, split_rows
from byrote.stats.compare import Comparison, compare_rates
from byrote.stats.population import Flags, Floats, Integers, Population
from byrote.study.plan import Axis
from byrote.study.run import MeasuredCell, StudyView
from byrote.types import Split


class Spans(NamedTuple):
    """Targets of windows: the document each stands in, its first character and the one after its last."""

    document: NDArray[np.object_]
    start: Integers
    end: Integers

    @classmethod
    def of(cls, population: Population) -> "Spans":
        sides = np.where(population.is_control, "control:", "target:").astype(object)
        return cls(sides + population.document, population.suffix_char_start, population.char_end)


class Pairing(NamedTuple):
    """`first[i]` and `second[i]` are positions of a pair, in the order of the first run."""

    first: Integers
    second: Integers
    overlap: Floats
    unpaired_first: int
    unpaired_second: int

    @property
    def unpaired_share(self) -> float:
        """The share of all windows of both runs that have no partner; NaN without windows."""
        alone = self.unpaired_first + self.unpaired_second
        every = alone + 2 * len(self.first)
        return alone / every if every else float("nan")


def pair_by_span(first: Spans, second: Spans, *, least_overlap: float) -> Pairing:
    """The pairs, best overlap first; ties go to the earlier window of the first run, then of the second."""
    rows, columns, overlaps = _candidates(first, second)
    taken_first, taken_second = np.zeros(len(first.start), bool), np.zeros(len(second.start), bool)
    chosen = []
    for edge in np.lexsort((columns, rows, -overlaps)):
        row, column = rows[edge], columns[edge]
        if overlaps[edge] >= least_overlap and not taken_first[row] and not taken_second[column]:
            taken_first[row] = taken_second[column] = True
            chosen.append(edge)
    kept = np.array(sorted(chosen, key=lambda edge: rows[edge]), dtype=np.int64)
    return Pairing(rows[kept], columns[kept], overlaps[kept], int((~taken_first).sum()), int((~taken_second).sum()))


def _candidates(first: Spans, second: Spans) -> tuple[Integers, Integers, Floats]:
    """Every two windows of a document whose targets share a character, with their overlap."""
    _, numbers = np.unique(np.concatenate([first.document, second.document]), return_inverse=True)
    # Documents end to end: targets of two of them share no place.
    shifts = numbers * (1 + max(first.end.max(initial=0), second.end.max(initial=0)))
    here, there = np.split(shifts, [len(first.start)])
    own_starts, own_ends = first.start + here, first.end + here
    others = np.argsort(second.start + there, kind="stable")
    starts, ends = (second.start + there)[others], (second.end + there)[others]
    longest = int((ends - starts).max(initial=0))
    # A target that shares a character starts before ours ends, and not further before it than the longest is long.
    low = np.searchsorted(starts, own_starts - longest, side="right")
    high = np.searchsorted(starts, own_ends, side="left")
    counts = np.maximum(high - low, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.repeat(low, counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    both = np.minimum(own_ends[rows], ends[places]) - np.maximum(own_starts[rows], starts[places])
    either = np.maximum(own_ends[rows], ends[places]) - np.minimum(own_starts[rows], starts[places])
    shares = both > 0
    return rows[shares], others[places[shares]], both[shares] / either[shares]


@dataclass(frozen=True, slots=True)
class PairedCells:
    """The second cell against the first, on target windows paired by span."""

    axis: Axis
    first: MeasuredCell
    second: MeasuredCell
    pairing: Pairing
    verbatim: Comparison | None
    near: Comparison | None
    """At each cell's own ε. None without pairs, or where it was not measured."""


def paired_cells(study: StudyView) -> list[PairedCells]:
    """Along every axis: each value against the axis's first, all else equal."""
    found = []
    for axis in study.swept:
        if axis.name == "texts":
            continue
        others = [each.name for each in study.axes if each.name != axis.name]
        firsts: dict[tuple[str, ...], MeasuredCell] = {}
        for one in study.cells:  # the last axis runs fastest, so a cell with the first value comes before its others
            place = tuple(one.cell.settings[name] for name in others)
            if one.cell.settings[axis.name] == axis.values[0]:
                firsts[place] = one
            elif place in firsts:
                found.append(_compare_cells(axis, firsts[place], one, least_overlap=study.config.overlap))
    return found


def _compare_cells(axis: Axis, first: MeasuredCell, second: MeasuredCell, *, least_overlap: float) -> PairedCells:
    parts = [one.view.population.select(split_rows(one.view.population, Split.TARGET)) for one in (first, second)]
    spans = [Spans.of(part) for part in parts]
    if axis.name == "suffix_tokens":
        # The first character of every target is what targets of different lengths after one prefix have in common.
        spans = [span._replace(end=span.start + 1) for span in spans]
    pairing = pair_by_span(*spans, least_overlap=least_overlap)
    judged = [(part, one.view.threshold) for part, one in zip(parts, (first, second), strict=True)]
    verbatim = [part.verbatim() >= tau for part, tau in judged]
    near = [part.mass(part.edit_budget) >= tau for part, tau in judged if part.mass_lower is not None]
    found = [_compared(parts[0], pairing, hits) for hits in (verbatim, near)]
    return PairedCells(axis, first, second, pairing, *found)


def _compared(first: Population, pairing: Pairing, hits: list[Flags]) -> Comparison | None:
    if not len(pairing.first) or len(hits) < 2:
        return None
    is_paired = np.isin(np.arange(len(first)), pairing.first)
    places = places_of(first.select(is_paired))
    return compare_rates(hits[0][pairing.first], hits[1][pairing.second], places)
