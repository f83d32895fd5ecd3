"""What sampled answers say: whether a run's own bounds can be true, and what windows that are not certified can hold.

Every window has n sampled answers, each a hit with probability m, the window's mass. Answers are independent, so with
h hits in the M answers to some windows, without any assumption about how their masses are spread:

    mean mass ≤ the limit of Clopper and Pearson for h of M         (3/M without a hit, at 95 %)
    extractable windows ≤ the largest K with P(at most h hits in K·n answers of chance τ) ≥ 1 − level

The first holds because hits of unequal chances are less spread than those of equal ones (Hoeffding 1956), the second
because an extractable window hits with at least chance τ. Both are about these windows, not about a text in general.
"""

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from byrote.deferred import Deferred
from byrote.stats.intervals import exact_interval
from byrote.stats.population import Flags, Floats, Integers, Population

special = Deferred("scipy.special")

CHANCE = 1e-6
"""How likely a run with true bounds is to be taken for one with wrong ones, at most."""


def mean_mass_at_most(hits: int, answers: int, *, level: float = 0.95) -> float:
    """The largest mean mass that leaves so few hits a chance of 1 − level; NaN without answers."""
    return exact_interval(hits, answers, level=2 * level - 1).high


def mean_at_most(seen: float, count: int, alpha: float) -> float:
    """The largest mean of `count` independent numbers in [0, 1] that leaves their mean a chance of α to be `seen` or
    less, by Chernoff."""

    def divergence(mean: float) -> float:
        first = seen * math.log(seen / mean) if seen > 0 else 0.0
        return first + ((1 - seen) * (math.log1p(-seen) - math.log1p(-mean)) if seen < 1 else 0.0)

    low, high = min(seen, 1.0), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        is_likely = middle < 1 and count * divergence(middle) <= -math.log(alpha)
        low, high = (middle, high) if is_likely else (low, middle)
    return high


def extractable_at_most(windows: int, hits: int, answers: int, threshold: float, *, level: float = 0.95) -> int:
    """How many of `windows` windows can reach τ when each had `answers` answers and `hits` of all of them hit."""

    def is_too_many(count: int) -> bool:
        return hits < count * answers and float(special.bdtr(hits, count * answers, threshold)) < 1 - level

    return bisect_left(range(1, windows + 1), True, key=is_too_many)


class Expected(NamedTuple):
    """Hits within so many edits: how many the bounds let expect at least and at most, and how many came."""

    edits: int
    at_least: float
    at_most: float
    hits: int


class Contradiction(NamedTuple):
    """Hits that the bounds of these windows make less likely than `CHANCE`."""

    expected: Expected
    rows: Integers
    """Of one window that is impossible by itself, or those that weigh most in the sum."""


class BoundsCheck(NamedTuple):
    """Hits by ε beside what the bounds let expect, and where they contradict each other."""

    windows: int
    answers: int
    expected: tuple[Expected, ...]
    contradictions: tuple[Contradiction, ...]


def check_bounds(
    lower: Floats, upper: Floats, answers: Integers, hits: Integers, *, rounding: float = 0.0
) -> BoundsCheck:
    """`lower`, `upper` and `hits` are [windows, budget + 1]. Bounds may be off by a share `rounding` of themselves,
    where answers and search were computed at low precision.

    Every ε is tested from both sides, as a sum and window by window, each with its part of `CHANCE`.
    """
    chance = CHANCE / (4 * lower.shape[1])
    expected, contradictions = [], []
    for edits in range(lower.shape[1]):
        low, high, hit = lower[:, edits] * (1 - rounding), upper[:, edits], hits[:, edits]
        high = np.minimum(high * (1 + rounding), 1.0)
        row = Expected(edits, float(answers @ low), float(answers @ high), int(hit.sum()))
        expected.append(row)
        # Too many hits are too few misses.
        for seen, least in ((hit, low), (answers - hit, 1 - high)):
            alone = special.bdtr(seen, answers, np.clip(least, 0.0, 1.0))
            rows = np.flatnonzero(alone < chance / len(low))
            if not len(rows) and log_tail(int(seen.sum()), answers, least) < math.log(chance):
                rows = np.argsort(seen - answers * least)[:10]
            if len(rows):
                contradictions.append(Contradiction(row, rows))
    return BoundsCheck(len(lower), int(answers.sum()), tuple(expected), tuple(contradictions))


def log_tail(hits: int, answers: Integers, chances: Floats) -> float:
    """An upper bound on log P(at most `hits` hits), by Chernoff: the least of θ·hits + Σ log E exp(−θ · hits of a
    window) over θ ≥ 0. −inf where so few are impossible."""
    counts = (answers > 0) & (chances > 0)
    answers, chances = answers[counts], chances[counts]
    if hits >= answers @ chances:
        return 0.0
    if hits < answers[chances >= 1].sum():
        return -math.inf

    def slope(theta: float) -> float:
        weight = chances * math.exp(-theta)
        return hits - float(answers @ (weight / (1 - chances + weight)))

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low * hits + float(answers @ np.log(1 - chances + chances * math.exp(-low)))


class Rest(NamedTuple):
    """The answers to windows that are not certified to reach τ, and what they limit."""

    windows: int
    open: int
    """Of these, those that are not ruled out either."""
    answers: int
    hits: int
    open_hits: int
    answers_each: int
    level: float

    @property
    def mean_mass(self) -> float:
        """Of a query to one of them, at most; NaN without answers."""
        return mean_mass_at_most(self.hits, self.answers, level=self.level)

    def extractable(self, threshold: float, *, answers_each: int | None = None) -> int:
        """Of the open ones, at most; of more answers each, if hits stay as rare."""
        each = self.answers_each if answers_each is None else answers_each
        hits = self.open_hits if not self.answers_each else self.open_hits * each // self.answers_each
        return extractable_at_most(self.open, hits, each, threshold, level=self.level) if each else self.open


def rest_of(population: Population, rows: Flags, threshold: float, *, level: float = 0.95) -> Rest | None:
    """The rest of the windows in `rows`; None where near-verbatim masses were not measured."""
    if population.mass_lower is None or population.mass_upper is None:
        return None
    rest = rows & (population.mass_lower[:, -1] < threshold)
    is_open = rest & (population.mass_upper[:, -1] >= threshold)
    if population.answers is None or population.answer_hits is None:
        return Rest(int(rest.sum()), int(is_open.sum()), 0, 0, 0, 0, level)
    answers, hits = population.answers, population.answer_hits[:, -1]
    return Rest(
        int(rest.sum()),
        int(is_open.sum()),
        int(answers[rest].sum()),
        int(hits[rest].sum()),
        int(hits[is_open].sum()),
        int(answers[is_open].min()) if is_open.any() else 0,
        level,
    )
