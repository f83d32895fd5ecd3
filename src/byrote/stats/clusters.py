"""What counts as independent: whole documents, or blocks of one text.

Windows that share characters or a document rise and fall together. Both remedies rest on the same picture: put the
windows in order on a line, cut or slide *units* over it, and let the unit sums vary. A document is a unit; inside a
book a unit is a block of characters, slid over the text in small steps (the moving-block bootstrap, wrapped round the
end so that every window is in equally many blocks). Differences of two runs use a few long stretches instead: they are
disjoint, and a dependence that reaches further than was estimated still ends inside them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from byrote.stats import intervals

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BLOCK_WINDOWS = 4
"""Default block length in windows. Correlation that reaches one window makes blocks of b windows understate the
variance by about 1/(3b), a third at b = 1 and a twelfth at b = 4; `Units.missed` makes up for it."""
MOST_MISSED = 0.5
FEWEST_BLOCKS = 10
"""The default block shrinks, down to one window, rather than leave fewer blocks than this."""
QUIET_LAGS = 5
STARTS_PER_WINDOW = 32
"""Block starts are this dense, so that the answer hardly depends on where the first block begins."""
MANY_DOCUMENTS = 10
"""From here on documents are the units even where blocks would be more numerous."""
MOST_STRETCHES = 6
"""Long stretches that a text is cut into. Student's quantile of five degrees of freedom is 2.57 instead of 1.96, the
price of an unknown reach of the dependence."""


@dataclass(frozen=True, eq=False)
class Places:
    """Where each window comes from: its document, its first character, and how many characters a window spans."""

    documents: NDArray[np.object_]
    char_starts: IntArray
    window_chars: int

    @classmethod
    def of(cls, documents: ArrayLike, char_starts: ArrayLike, *, window_chars: int) -> "Places":
        return cls(np.asarray(documents, dtype=np.object_), np.asarray(char_starts, dtype=np.int64), window_chars)

    def __len__(self) -> int:
        return int(self.char_starts.size)


@dataclass(frozen=True, eq=False)
class Units:
    """Runs of windows that vary together.

    Unit c holds the windows `order[firsts[c]:ends[c]]`, indices past the end wrapping round. `drawn` of them make up
    the text: all documents, or as many blocks as cover it once.
    """

    method: intervals.RateMethod
    order: IntArray
    firsts: IntArray
    ends: IntArray
    drawn: int
    block_chars: int | None = None
    missed: float = 0.0
    """The share of the variance that blocks of this length miss, because neighbours across a cut are alike."""

    @property
    def sizes(self) -> IntArray:
        return self.ends - self.firsts

    @property
    def is_disjoint(self) -> bool:
        """Whether no window is in two units: documents and long stretches, not sliding blocks."""
        return bool(np.all(self.firsts[1:] >= self.ends[:-1])) and int(self.sizes.sum()) == self.order.size

    @property
    def degrees(self) -> float:
        """Student's degrees of freedom: units of equal size that would weigh as much as these, minus 1; at least 1."""
        if not self.is_disjoint:
            return max(1.0, self.drawn - 1.0)
        sizes = self.sizes.astype(np.float64)
        return max(1.0, float(sizes.sum() ** 2 / (sizes**2).sum()) - 1.0)

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of `values` over each unit."""
        ordered = values[self.order]
        running = np.concatenate([[0.0], np.cumsum(np.concatenate([ordered, ordered]))])
        return np.asarray(running[self.ends] - running[self.firsts], dtype=np.float64)

    def variance_of_mean(self, values: FloatArray) -> float:
        """The variance of the mean of `values` when units, not windows, are independent; NaN below two units.

        Of disjoint units it is the jackknife over units, which does not understate where their sizes differ. For
        sliding blocks it is what the moving-block bootstrap tends to with ever more resamples: the linearised ratio of
        unit sums to unit sizes, times drawn/(drawn − 1).
        """
        if self.drawn < 2:
            return float("nan")
        residual = self.sums(values - values.mean())
        if self.is_disjoint:
            without = residual / (self.order.size - self.sizes)
            return float((without**2).sum()) * (self.drawn - 1) / self.drawn / (1.0 - self.missed)
        per_draw = float(np.mean(residual**2)) / float(np.mean(self.sizes)) ** 2
        return per_draw / (self.drawn - 1) / (1.0 - self.missed)

    def largest_design_effect(self) -> float:
        """The variance inflation if all windows of a unit always agreed: mean square size over mean size, ≥ 1."""
        sizes = self.sizes.astype(np.float64)
        return max(1.0, float(np.mean(sizes**2) / np.mean(sizes)))


def choose_units(places: Places, values: FloatArray | None = None) -> Units:
    """Documents if there are many of them or no more blocks than documents; otherwise blocks.

    With documents as units an interval is about other texts like these; with blocks it is about other passages of
    these texts. Blocks grow with the reach of the correlation seen in `values`.
    """
    return _documents_or(block_units(places, values), places)


def long_units(places: Places, values: FloatArray | None = None) -> Units:
    """Documents if there are many of them or no more stretches than documents; otherwise a few long stretches."""
    return _documents_or(stretch_units(places, values), places)


def _documents_or(parts: Units, places: Places) -> Units:
    documents = document_units(places)
    return documents if documents.drawn >= min(MANY_DOCUMENTS, max(2, parts.drawn)) else parts


def stretch_units(places: Places, values: FloatArray | None = None) -> Units:
    """The texts end to end in at most MOST_STRETCHES equal stretches, each at least BLOCK_WINDOWS windows long."""
    positions, length = _end_to_end(places)
    count = max(1, min(MOST_STRETCHES, length // (BLOCK_WINDOWS * places.window_chars)))
    order = np.argsort(positions, kind="stable").astype(np.int64)
    edges = np.searchsorted(positions[order] * count, np.arange(count + 1) * length).astype(np.int64)
    held = edges[1:] > edges[:-1]
    missed = _missed(_reach_chars(places, positions, values), length / count)
    method = intervals.RateMethod.BY_BLOCK
    return Units(method, order, edges[:-1][held], edges[1:][held], int(held.sum()), length // count, missed)


def document_units(places: Places) -> Units:
    """One unit per document."""
    labels = np.unique(places.documents.astype(str), return_inverse=True)[1].reshape(-1)
    order = np.argsort(labels, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(labels)).astype(np.int64)
    firsts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return Units(intervals.RateMethod.BY_DOCUMENT, order, firsts, ends, drawn=int(ends.size))


def block_units(places: Places, values: FloatArray | None = None) -> Units:
    """Blocks at evenly spaced places: the windows that begin within the next `block_chars` characters.

    Several documents are laid end to end, one window apart. A block is BLOCK_WINDOWS times as long as correlation
    reaches (one window, or more if `values` show it), less where that would leave fewer than FEWEST_BLOCKS blocks, and
    never shorter than a window.
    """
    positions, length = _end_to_end(places)
    reach = _reach_chars(places, positions, values)
    block_chars = max(places.window_chars, min(BLOCK_WINDOWS * reach, length // FEWEST_BLOCKS))
    order = np.argsort(positions, kind="stable").astype(np.int64)
    line = positions[order]
    starts = np.arange(0, length, max(1, places.window_chars // STARTS_PER_WINDOW))
    firsts = np.searchsorted(line, starts, side="left").astype(np.int64)
    beyond = np.searchsorted(np.concatenate([line, line + length]), starts + block_chars, side="left")
    # A block longer than the line would count windows twice.
    ends = np.minimum(beyond, firsts + line.size).astype(np.int64)
    # Empty blocks (a sparse sample of windows) hold no evidence: they are neither drawn nor counted.
    held = ends > firsts
    drawn = int(length * float(held.mean()) / block_chars + 1e-9)
    missed = _missed(reach, block_chars)
    return Units(intervals.RateMethod.BY_BLOCK, order, firsts[held], ends[held], drawn, block_chars, missed)


def _reach_chars(places: Places, positions: IntArray, values: FloatArray | None) -> int:
    """How many characters correlation reaches: a window, or more if `values` show it."""
    reach = 1 if values is None else correlated_windows(values, positions // places.window_chars)
    return reach * places.window_chars


def _missed(reach_chars: int, block_chars: float) -> float:
    return min(MOST_MISSED, reach_chars / (3.0 * block_chars))


def correlated_windows(values: FloatArray, cells: IntArray) -> int:
    """How many windows' lengths correlation reaches, at least 1.

    Values are averaged over cells one window long. The reach ends at the first run of QUIET_LAGS cell lags without a
    correlation above 2·√(log₁₀ cells / cells), the rule Politis and White use to choose block lengths.
    """
    counts = np.bincount(cells)
    sums = np.bincount(cells, weights=values - values.mean())
    means = np.divide(sums, counts, out=np.zeros(counts.size), where=counts > 0)
    size, power = means.size, float(means @ means)
    if power <= 0.0 or size <= 2 * QUIET_LAGS:
        return 1
    threshold = 2.0 * math.sqrt(math.log10(size) / size)
    last_loud = 0
    for lag in range(1, size // 2):
        if float(means[lag:] @ means[:-lag]) / power > threshold:
            last_loud = lag
        elif lag - last_loud >= QUIET_LAGS:
            break
    return 1 + last_loud


def _end_to_end(places: Places) -> tuple[IntArray, int]:
    """Positions on one line, and the line's length; each document takes its span of starts plus one window."""
    labels = np.unique(places.documents.astype(str), return_inverse=True)[1].reshape(-1)
    earliest = np.full(labels.max() + 1, np.iinfo(np.int64).max)
    latest = np.full(labels.max() + 1, np.iinfo(np.int64).min)
    np.minimum.at(earliest, labels, places.char_starts)
    np.maximum.at(latest, labels, places.char_starts)
    extents = latest - earliest + places.window_chars
    offsets = np.cumsum(extents) - extents
    return (places.char_starts - earliest[labels] + offsets[labels]).astype(np.int64), int(extents.sum())


def rate_with_clusters(
    hits: ArrayLike, documents: ArrayLike, char_starts: ArrayLike, *, window_chars: int
) -> intervals.Rate:
    """The share of windows that hit, with an interval that holds for overlapping windows.

    Many documents are the units themselves; one book is cut into blocks; `Rate.method` and `Rate.units` say which.
    """
    places = Places.of(documents, char_starts, window_chars=window_chars)
    if len(places) == 0:
        return intervals.Rate(
            math.nan, intervals.undefined("no windows, so no rate"), 0, intervals.RateMethod.BY_DOCUMENT, 0, math.nan
        )
    values = np.asarray(hits, dtype=np.float64)
    return rate_over_units(values, choose_units(places, values))


def rate_over_units(hits: ArrayLike, units: Units) -> intervals.Rate:
    """`rate_with_clusters` for units already chosen: many criteria over the same windows share them."""
    outcome = np.asarray(hits, dtype=np.float64)
    share = float(outcome.mean())
    if units.drawn < 2:
        interval, effect = intervals.undefined(_too_few(units)), math.nan
    else:
        effect, effective = _evidence(outcome, units)
        interval = intervals.exact_interval(effective if share == 1.0 else share * effective, effective)
    return intervals.Rate(share, interval, outcome.size, units.method, units.drawn, effect)


def _evidence(outcome: FloatArray, units: Units) -> tuple[float, float]:
    """The design effect, and how many independent windows would say as much; fewer where the design effect itself is
    known badly."""
    n, share = outcome.size, float(outcome.mean())
    largest = units.largest_design_effect()
    if share in (0.0, 1.0):
        return largest, n / largest
    implied = 1.0 + (largest - 1.0) * _agreement(outcome, units)
    estimated = max(1.0, implied, units.variance_of_mean(outcome) * n / (share * (1.0 - share)))
    degrees = min(units.degrees, _units_with_rarer_outcome(outcome, units))
    fewer = (intervals.normal_quantile(intervals.LEVEL) / intervals.student_quantile(intervals.LEVEL, degrees)) ** 2
    return min(estimated, largest), max(n / estimated * fewer, n / largest)


def _agreement(outcome: FloatArray, units: Units) -> float:
    """The correlation of two windows of a document (Fleiss and Cuzick), at least 0; 0 for sliding blocks."""
    n, share, count = outcome.size, float(outcome.mean()), units.sizes.size
    if not units.is_disjoint or n == count:
        return 0.0
    hits, sizes = units.sums(outcome), units.sizes.astype(np.float64)
    within = float((hits * (sizes - hits) / sizes).sum())
    return max(0.0, 1.0 - within / ((n - count) * share * (1.0 - share)))


def _units_with_rarer_outcome(outcome: FloatArray, units: Units) -> int:
    """How many of the units of one draw hold the rarer outcome, at least 1."""
    rarer = outcome if outcome.mean() <= 0.5 else 1.0 - outcome
    share_of_units = float(np.mean(units.sums(rarer) > 0.5))
    return max(1, round(share_of_units * units.drawn))


def _too_few(units: Units) -> str:
    if units.method is intervals.RateMethod.BY_DOCUMENT:
        return "one document: its windows say nothing about how documents differ"
    return f"the text is shorter than two blocks of {units.block_chars} characters"
