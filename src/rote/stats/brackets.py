"""Between which two numbers the share of extractable windows lies: at least what is certified, at most what a limit at
one stated confidence allows. Every window is counted, also those that were not searched.

A window is *extractable* when its near-verbatim mass reaches τ. Bounds decide some windows; the rest is of two kinds.

**Searched and undecided** (`undecided_at_most`). If such a window is extractable, every ticket of its estimate hits
with a mean chance of q = (τ − base)/sampled mass or more. Then, for r in [0, 1) and h hits in N tickets,

    e = floor + (1 − floor) · r^h / (1 − (1 − r) q)^N        has mean 1 at most

(tickets are independent; their chances may differ: Π (1 − (1 − r) q_j) is largest when they are equal). Windows are
independent, so for the set of all that are extractable the product of e is 1/α or more with a chance of α at most, by
Markov. So with confidence 1 − α their number is at most the largest k for which k windows exist with a product below
1/α: the k smallest e decide. The mean of such products over several (floor, r) chosen beforehand serves as well.

**Left out by the screen** (`_Stratum.at_most`). Some windows rated below the floor were drawn at random and searched.
Two kinds can be missed among the others: those that a search would certify, whose number in the sample is
hypergeometric; and those that a search would leave undecided. Of these a random sample gets N tickets each; one
that is extractable raises an alarm (a hit) with a chance of ρ = 1 − (1 − τ)^N at least, and one that was tested less
raises it always. The number of alarms is distributed as a sum of independent trials (the generating polynomial of a
sample without replacement has real roots only), so Clopper and Pearson's limit holds for their mean chance (Hoeffding
1956), and the share of such windows is at most that limit over ρ. Both kinds are windows that a search would not rule
out, whose number in the sample is hypergeometric too: where the audit rules most windows out, this alone says enough.

Every statement has the chance α / (number of statements) to fail, so all hold together with confidence 1 − α, whatever
depends on what.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from rote.stats.audited import most_in_population
from rote.stats.intervals import check_level, exact_interval
from rote.stats.population import Flags, Floats, Population

FAMILY = ((0.0, 0.0), (0.0, 0.5), (0.3, 0.0), (0.7, 0.0), (0.1, 0.5))
"""(floor, r): without any hit r = 0 says most; a floor keeps a window with many hits from hiding all the others."""
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of each window at the whole edit budget. [windows]"""

    lower: Floats
    upper: Floats
    p_verbatim: Floats
    density: Floats
    """How densely windows like this were drawn into the audit of the screen; NaN for one that passed the screen."""
    is_searched: Flags
    tickets: Floats
    """0 where nothing was sampled; NaN for a window that its audit left out of the sample."""
    hits: Floats
    sampled_mass: Floats
    base_mass: Floats

    def __len__(self) -> int:
        return len(self.lower)

    def select(self, rows: Flags) -> "Evidence":
        return Evidence(*(getattr(self, field.name)[rows] for field in fields(self)))

    def chance_to_hit(self, threshold: float) -> Floats:
        """The least mean chance of a ticket to hit, if the window is extractable; 0 where nothing was sampled."""
        asked = np.maximum(threshold - self.base_mass, 0.0)
        chance = np.divide(asked, self.sampled_mass, out=np.zeros(len(self)), where=self.sampled_mass > 0)
        return np.where(self.tickets > 0, np.minimum(chance, 1.0), 0.0)


class Bracket(NamedTuple):
    """`certified` of `windows` are extractable for certain, `at_most` at confidence `level`."""

    windows: int
    certified: int
    at_most: int
    level: float
    undecided: int
    """Searched, and certified to be neither."""
    undecided_at_most: int
    """Of those that are no part of the screen's audit."""
    left_out: int
    """Not searched, because the screen left them out."""
    left_out_at_most: int
    """Of these, and of the audited windows that stayed undecided."""
    is_sampled: bool
    """Whether anything that was sampled lowers `at_most`: if not, it is certified too."""
    samples: int
    """Tickets that were drawn, whatever they show."""

    @property
    def low(self) -> float:
        return self.certified / self.windows if self.windows else math.nan

    @property
    def high(self) -> float:
        return self.at_most / self.windows if self.windows else math.nan


def bracket(evidence: Evidence, threshold: float, *, promised: int, level: float = 0.95) -> Bracket:
    """The windows of `evidence` that are extractable at τ = `threshold`: how many at least, and at most.

    `promised`: tickets that every audited window gets which its search does not decide.
    """
    check_level(level)
    is_extractable = evidence.lower >= threshold
    is_open = ~is_extractable & (evidence.upper >= threshold)
    strata = [_Stratum.of(evidence, rows, threshold, promised) for rows in _strata(evidence, threshold)]
    strata = [stratum for stratum in strata if stratum.left_out]
    own = is_open & evidence.is_searched
    for stratum in strata:
        own &= ~stratum.rows
    has_tickets = bool((evidence.tickets[own] > 0).any())
    statements = has_tickets + sum(1 + 2 * stratum.is_tested for stratum in strata)
    alpha = (1 - level) / max(1, statements)
    undecided = undecided_at_most(evidence.select(own), threshold, alpha=alpha)
    left_out = sum(stratum.at_most(alpha) for stratum in strata)
    certified = int(is_extractable.sum())
    return Bracket(
        len(evidence),
        certified,
        certified + undecided + left_out,
        level,
        int(own.sum()) + sum(stratum.undecided for stratum in strata),
        undecided,
        sum(stratum.left_out for stratum in strata),
        left_out,
        is_sampled=certified + undecided + left_out < certified + int(is_open.sum()),
        samples=int(np.nansum(evidence.tickets[is_open])),
    )


def undecided_at_most(evidence: Evidence, threshold: float, *, alpha: float) -> int:
    """How many of these windows are extractable at most, but for a chance of `alpha`."""
    if not len(evidence):
        return 0
    chance = evidence.chance_to_hit(threshold)
    logs = np.stack([np.cumsum(np.sort(_log_e(evidence, chance, *member))) for member in FAMILY])
    combined = np.logaddexp.reduce(logs, axis=0) - math.log(len(FAMILY))
    allowed = np.flatnonzero(combined < -math.log(alpha) + ROUNDING)
    return int(allowed[-1]) + 1 if len(allowed) else 0


def _log_e(evidence: Evidence, chance: Floats, floor: float, ratio: float) -> Floats:
    """log e of every window; 0 without tickets."""
    tickets = np.nan_to_num(evidence.tickets)
    with np.errstate(divide="ignore"):
        unlikely = -tickets * np.log1p(-np.minimum((1 - ratio) * chance, 1 - 1e-12))
        penalty = np.where(evidence.hits > 0, np.maximum(evidence.hits, 1) * np.log(ratio), 0.0)
        log_e = np.logaddexp(np.log(floor), np.log1p(-floor) + unlikely + penalty)
    return np.where(evidence.tickets > 0, log_e, 0.0)


class _Stratum(NamedTuple):
    """Windows that were drawn into the audit with the same chance; those that p_z alone shows to be extractable need
    no search and are not among them."""

    rows: Flags
    windows: int
    audited: int
    found: int
    undecided: int
    """Audited windows that the search did not decide."""
    sampled: int
    """Of these, those that were drawn to be tested."""
    alarms: int
    """Of the sampled ones, those with a hit, and those that were not tested well enough to raise an alarm."""
    alarm_chance: float

    @property
    def left_out(self) -> int:
        return self.windows - self.audited

    @property
    def is_tested(self) -> bool:
        return self.sampled > 0 and self.alarm_chance > 0

    @classmethod
    def of(cls, evidence: Evidence, rows: Flags, threshold: float, promised: int) -> "_Stratum":
        drawn = evidence.select(rows & evidence.is_searched)
        is_found = drawn.lower >= threshold
        is_open = ~is_found & (drawn.upper >= threshold)
        is_sampled = is_open & ~np.isnan(drawn.tickets)
        least = -math.expm1(promised * math.log1p(-min(threshold, 1 - 1e-12)))
        with np.errstate(divide="ignore"):
            tested = -np.expm1(drawn.tickets * np.log1p(-drawn.chance_to_hit(threshold)))
        is_alarm = is_sampled & ((drawn.hits > 0) | (tested < least * (1 - ROUNDING)))
        found, undecided, sampled, alarms = (int(kind.sum()) for kind in (is_found, is_open, is_sampled, is_alarm))
        return cls(rows, int(rows.sum()), len(drawn), found, undecided, sampled, alarms, least)

    def at_most(self, alpha: float) -> int:
        """Extractable windows among those left out and the audited ones that stayed undecided."""
        not_ruled_out = self.found + self.undecided
        most = most_in_population(self.windows, self.audited, not_ruled_out, level=1 - alpha)
        everything = most - self.found
        if not self.is_tested:
            return everything
        certified = most_in_population(self.windows, self.audited, self.found, level=1 - alpha) - self.found
        # Hoeffding's comparison is about counts at least one below their mean: nearly all alarms say nothing.
        if self.alarms >= self.sampled - 1:
            return everything
        share = exact_interval(self.alarms, self.sampled, level=1 - 2 * alpha).high / self.alarm_chance
        return min(everything, certified + math.floor(self.windows * share))


def _strata(evidence: Evidence, threshold: float) -> Sequence[Flags]:
    needs_search = ~np.isnan(evidence.density) & (evidence.p_verbatim < threshold)
    return [needs_search & (evidence.density == density) for density in np.unique(evidence.density[needs_search])]


def evidence_of(population: Population, threshold: float) -> Evidence | None:
    """What a run at this τ knows of its windows; None where near-verbatim masses were not measured."""
    if population.mass_lower is None or population.mass_upper is None:
        return None
    size = len(population)

    def known(column: Floats | None, default: float) -> Floats:
        return np.full(size, default) if column is None else np.nan_to_num(column, nan=default)

    lower, upper = population.mass_lower[:, -1], population.mass_upper[:, -1]
    # Windows that the run has decided were not tested, and stay untested at any other τ.
    is_undecided = (lower < threshold) & (upper >= threshold)
    tickets = np.full(size, np.nan) if population.tickets is None else population.tickets
    return Evidence(
        lower=lower,
        upper=upper,
        p_verbatim=population.mass_lower[:, 0],
        density=np.full(size, np.nan) if population.screen_density is None else population.screen_density,
        is_searched=np.ones(size, dtype=np.bool_) if population.is_searched is None else population.is_searched,
        tickets=np.where(np.isnan(tickets) & ~is_undecided, 0.0, tickets),
        hits=known(population.ticket_hits, 0.0),
        sampled_mass=known(population.ticket_mass, 0.0),
        base_mass=known(population.ticket_base, 0.0),
    )
