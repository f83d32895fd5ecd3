"""The risk of a whole work: of n queries, each for a random window of it, does anything leak, and how much?

A query takes one of the N windows at random, gives the model its prefix and samples one answer. Window i answers with
its suffix (or something within ε edits of it) with probability m_i. Then, exactly:

- a query leaks with probability m̄ = Σ m_i / N, and n of them leak at least once with probability 1 − (1 − m̄)^n;
- a character is recovered by a query if a window whose suffix covers it is taken and answers: with probability
  s_c = Σ {m_i : i covers c} / N. The expected number of characters recovered is Σ_c 1 − (1 − s_c)^n.

Both rise with every m_i, so lower bounds of m_i give lower bounds, and upper bounds upper ones. Where only the sum is
limited, Σ m_i ≤ Σ k_i + D, the first is a function of the sum alone. In the second, D adds Σ_c at most
D · longest suffix / N to the s_c, and 1 − (1 − s)^n is concave: it gains most where the lowest s_c are raised to one
level.
"""

from typing import NamedTuple

import numpy as np

from byrote.stats.curves import probability_within
from byrote.stats.population import Floats, Integers


class Stretches(NamedTuple):
    """A text cut where suffixes begin and end: characters of each stretch, and the chance that a query recovers it."""

    characters: Integers
    chance: Floats

    @property
    def covered(self) -> int:
        """Characters in some suffix: no query recovers more than these."""
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
