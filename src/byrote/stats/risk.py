"""The risk of a whole work: somebody asks n times about random windows of it. Does anything leak, and how much?

A query takes one of the N windows at random, gives the model its prefix and samples one answer. Window i answers with
its suffix (or something within ε edits of it) with probability m_i. Then, exactly:

- a query leaks with probability m̄ = Σ m_i / N, and n of them leak at least once with probability 1 − (1 − m̄)^n;
- a character is recovered by a query if a window whose suffix covers it is taken and answers: with probability
  s_c = Σ {m_i : i covers c} / N. The expected number of characters recovered is Σ_c 1 − (1 − s_c)^n.

Both rise with every m_i, so lower bounds of m_i give lower bounds, and upper bounds upper ones. Where only a sum is
limited, Σ m_i ≤ Σ k_i + D (`byrote.stats.risk`), the first is a function of the sum alone. In the second, D adds
Σ_c at most D · longest suffix / N to the s_c, and 1 − (1 − s)^n is concave: it gains most where the lowest s_c are
raised to one level.
"""

import math
from typing import NamedTuple

import numpy as np

from byrote.stats.curves import probability_within
from byrote.stats.intervals import check_level
from byrote.stats.limits import Evidence
from byrote.stats.population import Flags, Floats, Integers


class Stretches(NamedTuple):
    """A text cut where suffixes begin and end: characters of each stretch, and the chance that a query recovers it."""

    characters: Integers
    chance: Floats

    @property
    def covered(self) -> int:
        """Characters that stand in some suffix: more than these no query recovers."""
        return int(self.characters.sum())


def stretches(starts: Integers, ends: Integers, masses: Floats) -> Stretches:
    """Between two neighbouring edges the same windows cover every character; stretches without any are left out."""
    edges = np.unique(np.concatenate([starts, ends]))
    mass, windows = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1, dtype=np.int64)
    # Added where they belong and not as a running sum of differences, which would leave rounding behind.
    for first, last, value in zip(np.searchsorted(edges, starts), np.searchsorted(edges, ends), masses, strict=True):
        mass[first:last] += value
        windows[first:last] += 1
    is_covered = windows > 0
    return Stretches(np.diff(edges)[is_covered], np.minimum(mass[is_covered] / len(masses), 1.0))


def raised(text: Stretches, budget: float) -> Stretches:
    """The chances that make most of `budget` more, summed over characters: the lowest ones raised to one level."""
    order = np.argsort(text.chance)
    characters, chance = text.characters[order], text.chance[order]
    below, summed = np.cumsum(characters), np.cumsum(characters * chance)
    # The level if the first k stretches are raised; it is right where it reaches them and not the next.
    level = (budget + summed) / below
    reached = np.flatnonzero(level >= chance)
    top = level[reached[-1]] if len(reached) else 0.0  # rounding, where there is next to nothing to add
    return Stretches(text.characters, np.minimum(np.maximum(text.chance, top), 1.0))


def leak_probability(mean_mass: float, queries: float) -> float:
    """The chance that at least one of n queries to random windows leaks."""
    with np.errstate(divide="ignore"):
        return probability_within(float(np.log(mean_mass)), queries)


def expected_characters(text: Stretches, queries: float) -> float:
    """Characters that n queries to random windows recover on average; each counts once, however often it comes."""
    with np.errstate(divide="ignore"):
        recovered = probability_within(np.log(text.chance), queries)
    return float(np.sum(text.characters * recovered))


ROUNDING = 1e-9


class TotalMass(NamedTuple):
    """Σ mass ≤ Σ `known` + `extra` at the confidence asked for, and mass ≤ `known` where a window is not open."""

    known: Floats
    """[windows]: the certified lower bound of windows that are open, the upper one of the others."""
    extra: float
    """What the open windows weigh together beyond that, at most."""
    is_open: Flags
    is_sampled: bool
    """False where all of it is certified."""

    @property
    def mean(self) -> float:
        return (float(self.known.sum()) + self.extra) / len(self.known)


class _Part(NamedTuple):
    """Windows whose sum is limited, and the limit."""

    rows: Flags
    total: float


def total_mass(evidence: Evidence, *, level: float = 0.95) -> TotalMass:
    """The limit on the sum of all masses."""
    check_level(level)
    strata = _strata(evidence)
    own = evidence.is_searched.copy()
    for rows in strata:
        own &= ~rows
    has_tickets = own & (evidence.tickets > 0) & (evidence.sampled_mass > 0)
    alpha = (1 - level) / max(1, len(strata) + bool(has_tickets.any()))
    parts = [_left_out(evidence, rows, alpha) for rows in strata] + _by_tickets(evidence, has_tickets, alpha)
    known, is_open, extra = evidence.upper.copy(), np.zeros(len(evidence), dtype=np.bool_), 0.0
    for rows, total in parts:
        if total < evidence.upper[rows].sum():
            known[rows], is_open = evidence.lower[rows], is_open | rows
            extra += max(0.0, total - float(evidence.lower[rows].sum()))
    return TotalMass(known, extra, is_open, bool(is_open.any()))


def _strata(evidence: Evidence) -> list[Flags]:
    """Windows of one density, where some were left out and some were drawn."""
    strata = [evidence.density == density for density in np.unique(evidence.density[~np.isnan(evidence.density)])]
    return [rows for rows in strata if (rows & evidence.is_searched).any() and (rows & ~evidence.is_searched).any()]


def _left_out(evidence: Evidence, rows: Flags, alpha: float) -> _Part:
    drawn = evidence.select(rows & evidence.is_searched)
    says = np.where(_has_limit(drawn), drawn.base_mass + drawn.sampled_mass * _hit_share(drawn), drawn.upper)
    is_sampled = drawn.tickets > 0
    if not (np.isnan(drawn.tickets).any() and is_sampled.any()):
        return _Part(rows, int(rows.sum()) * mean_at_most(float(says.mean()), len(drawn), alpha))
    # Of the undecided ones only a random part has tickets: they speak for all of these, the others for themselves.
    decided = np.where(drawn.tickets == 0, says, 0.0)
    mean = mean_at_most(float(decided.mean()), len(drawn), alpha / 2)
    mean += mean_at_most(float(says[is_sampled].mean()), int(is_sampled.sum()), alpha / 2)
    return _Part(rows, int(rows.sum()) * min(1.0, mean))


def _by_tickets(evidence: Evidence, rows: Flags, alpha: float) -> list[_Part]:
    """The windows whose tickets are heavy enough to be worth summing, if there are any."""
    weights = np.where(rows, evidence.sampled_mass / np.maximum(evidence.tickets, 1), np.inf)
    heaviest = _heaviest(weights, evidence.upper - evidence.base_mass, alpha)
    chosen = weights <= heaviest
    if not chosen.any():
        return []
    one = evidence.select(chosen)
    trials = int(one.tickets.sum())
    hits = float((one.hits * weights[chosen]).sum()) / heaviest
    total = float(one.base_mass.sum()) + heaviest * trials * mean_at_most(hits / trials, trials, alpha)
    return [_Part(chosen, total)]


def _heaviest(weights: Floats, gains: Floats, alpha: float) -> float:
    """Which ticket may be the heaviest that is summed: without any hit, the limit is then lowest. 0 for none."""
    order = np.argsort(weights)
    order = order[np.isfinite(weights[order])]
    if not len(order):
        return 0.0
    left_aside = np.maximum(gains[order], 0.0).sum() - np.cumsum(np.maximum(gains[order], 0.0))
    return float(weights[order][np.argmin(-math.log(alpha) * weights[order] + left_aside)])


def _has_limit(evidence: Evidence) -> Flags:
    """Whether tickets say a number between 0 and 1, whatever they hit."""
    return (evidence.tickets > 0) & (evidence.base_mass + evidence.sampled_mass <= 1 + ROUNDING)


def _hit_share(evidence: Evidence) -> Floats:
    return np.divide(evidence.hits, evidence.tickets, out=np.zeros(len(evidence)), where=evidence.tickets > 0)


def mean_at_most(seen: float, count: int, alpha: float) -> float:
    """The largest mean of `count` terms in [0, 1] that leaves their mean a chance of α to be `seen` or less."""
    low, high = min(seen, 1.0), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if count * _divergence(seen, middle) <= -math.log(alpha) else (low, middle)
    return high


def _divergence(seen: float, mean: float) -> float:
    """KL of two coins; `seen` ≤ `mean` < 1."""
    first = seen * math.log(seen / mean) if seen > 0 else 0.0
    return first + ((1 - seen) * (math.log1p(-seen) - math.log1p(-mean)) if seen < 1 else 0.0)
