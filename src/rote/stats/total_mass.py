"""How much mass windows have together, at most: certified for some, at one stated confidence for the rest.

Bounds enclose the mass of every window. Two kinds of sampling say more about the sum of many of them.

**Tickets.** A window's mass is at most base + sampled mass · q, and each of its N tickets hits with a mean chance of q.
So Σ hits · (sampled mass / N) has the mean Σ sampled mass · q, and is a sum of independent terms of which none is
larger than the largest sampled mass / N.

**Audit of the screen.** Windows left out by the screen have no bound but 1. Some of each density were drawn at random
without replacement, and each says a number between 0 and 1 with its mass or more as mean: its upper bound, or what its
tickets say. The mean of all windows of that density is what the mean of those drawn estimates.

For both: of n terms in [0, 1] that are independent, or drawn without replacement, with the mean μ,

    P(their mean ≤ x) ≤ exp(−n · KL(x ‖ μ))        for x ≤ μ, KL of two coins

(Hoeffding 1963; for draws without replacement E Π (1 − θ y) ≤ (1 − θ μ)^n is Maclaurin's inequality). What is summed
by tickets is chosen by sizes alone, never by hits. Every statement has the chance α / (number of statements) to fail.
"""

import math
from typing import NamedTuple

import numpy as np

from rote.stats.brackets import Evidence
from rote.stats.intervals import check_level
from rote.stats.population import Flags, Floats

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
