"""How many of the windows left out a search would have found, when some kinds are drawn into an audit more densely.

Windows fall into strata of one density each, and are drawn by keys that are uniform and independent of what is to be
found. Whatever the rule that says how many keys are small enough, two things hold:

    chance π that a window is drawn is known        Σ over found (1 − π)/π is, on average, the number not found
    given the counts, a stratum's sample is random  found in it is hypergeometric, so its limit is exact

Neither asks that windows be independent of each other: what is random is the draw.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from byrote.errors import ConfigError
from byrote.stats.intervals import check_level, exact_interval
from byrote.stats.population import Flags, Floats, Population

ROUNDING = 1e-9


class Stratum(NamedTuple):
    """Windows that were drawn with the same chance."""

    windows: int
    audited: int
    found: int
    """Of the audited ones, those that their search certified and nothing else would have."""
    chance: float
    """Probability with which each of them was drawn."""

    @property
    def left_out(self) -> int:
        return self.windows - self.audited


def expected_missed(strata: Sequence[Stratum]) -> float:
    """Horvitz–Thompson: the unbiased estimate of how many of the windows left out would have been found.

    NaN when nothing was drawn from windows that cannot be: no estimate exists.
    """
    if any(stratum.left_out and stratum.chance <= 0 for stratum in strata):
        return math.nan
    return math.fsum(
        stratum.found * (1 - stratum.chance) / stratum.chance
        for stratum in strata
        if stratum.found and stratum.left_out
    )


def missed_at_most(strata: Sequence[Stratum], *, level: float = 0.95) -> int:
    """The largest number of windows among those left out that a search would have found, at this one-sided confidence.

    The samples of strata are independent given their counts, so each limit holds with chance level^(1/strata) and
    all together with `level`. Only strata with windows left out take part; the limit is 0 only when there is none.
    """
    check_level(level)
    uncertain = [stratum for stratum in strata if stratum.left_out]
    each = level ** (1 / len(uncertain)) if uncertain else level
    # At least one, while a window is left out: a limit of 0 would claim that none can have been missed.
    limit = sum(most_in_population(*stratum[:3], level=each) - stratum.found for stratum in uncertain)
    return max(limit, 1) if uncertain else 0


def most_in_population(windows: int, audited: int, found: int, *, level: float) -> int:
    """The largest number M of such windows in all that leaves `found` or fewer in the sample a chance of 1 − level.

    P(X ≤ found | M) falls with M, so M is found by bisection.
    """
    if not 0 <= found <= audited <= windows:
        raise ConfigError(f"{found} found in {audited} audited of {windows} windows is impossible.")
    low, high = found, windows - (audited - found)
    while low < high:
        middle = (low + high + 1) // 2
        # A rounding must not make the limit smaller than it is.
        if at_most_found(windows, middle, audited, found) > (1 - level) * (1 - ROUNDING):
            low = middle
        else:
            high = middle - 1
    return low


def at_most_found(windows: int, marked: int, audited: int, found: int) -> float:
    """P(X ≤ found) for X marked windows in a random sample of `audited` out of `windows`: the hypergeometric tail."""
    least = max(0, audited - (windows - marked))
    logs = [
        _log_choose(marked, count) + _log_choose(windows - marked, audited - count)
        for count in range(least, min(found, marked, audited) + 1)
    ]
    everything = _log_choose(windows, audited)
    return min(1.0, math.fsum(math.exp(log - everything) for log in logs))


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


class Share(NamedTuple):
    """The share of marked ones in all, at least and at most."""

    low: float
    high: float


def drawn_share(marked: int, drawn: int, population: int | None, *, alpha: float) -> Share:
    """Limits of the share, both together with confidence 1 − `alpha`. `population` None: not known, or without end."""
    if population is not None and drawn >= population:
        return Share(marked / drawn, marked / drawn)
    if not 0 <= marked <= drawn or drawn == 0:
        raise ConfigError(f"{marked} marked of {drawn} drawn is impossible.")
    average = math.lgamma(marked + 1) + math.lgamma(drawn - marked + 1) - math.lgamma(drawn + 2)
    # A rounding must not make the limits narrower than they are.
    least = math.log(alpha) + average - ROUNDING
    if population is None:
        return _without_end(marked, drawn, least)
    low, high = marked, population - (drawn - marked)
    best = min(max(round(marked / drawn * population), low), high)

    def is_possible(count: int) -> bool:
        return _log_chance(count, marked, drawn, population) >= least

    first = _edge(low, best, is_possible)
    last = -_edge(-high, -best, lambda count: is_possible(-count))
    return Share(first / population, last / population)


def _edge(outer: int, inner: int, is_possible: Callable[[int], bool]) -> int:
    """The smallest possible count from `outer` to `inner`; what is possible reaches up to `inner`."""
    while outer < inner:
        middle = (outer + inner) // 2
        outer, inner = (outer, middle) if is_possible(middle) else (middle + 1, inner)
    return inner


def _log_chance(count: int, marked: int, drawn: int, population: int) -> float:
    others, missed = population - count, drawn - marked
    return (
        math.lgamma(count + 1)
        - math.lgamma(count - marked + 1)
        + math.lgamma(others + 1)
        - math.lgamma(others - missed + 1)
        - math.lgamma(population + 1)
        + math.lgamma(population - drawn + 1)
    )


def _without_end(marked: int, drawn: int, least: float) -> Share:
    """The same with p^k (1 − p)^(n − k) as the chance."""

    def is_possible(share: float) -> bool:
        logs = [
            count * math.log(part) if part > 0 else -math.inf
            for count, part in ((marked, share), (drawn - marked, 1 - share))
            if count
        ]
        return math.fsum(logs) >= least if all(map(math.isfinite, logs)) else not logs

    best = marked / drawn
    low, high = 0.0, 1.0
    inner = best
    while marked and (middle := (low + inner) / 2) not in (low, inner):
        low, inner = (low, middle) if is_possible(middle) else (middle, inner)
    outer = best
    while marked < drawn and (middle := (outer + high) / 2) not in (outer, high):
        outer, high = (middle, high) if is_possible(middle) else (outer, middle)
    return Share(low if marked else 0.0, high if marked < drawn else 1.0)


FAMILY = ((0.0, 0.0), (0.0, 0.5), (0.3, 0.0), (0.7, 0.0), (0.1, 0.5))
"""(floor, r): without any hit r = 0 says most; a floor keeps a window with many hits from hiding all the others."""


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


FACTORS = (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)


class Narrowing(NamedTuple):
    """`factor` times the samples, and the number of windows that the limit would then be."""

    factor: int
    at_most: int


def narrowing(
    evidence: Evidence, threshold: float, *, promised: int, goal: int, level: float = 0.95
) -> Narrowing | None:
    """The least factor that brings the limit down to `goal` windows, if hits stay as rare as they were; None where
    none does."""
    for factor in FACTORS:
        more = replace(evidence, tickets=evidence.tickets * factor, hits=evidence.hits * factor)
        at_most = bracket(more, threshold, promised=promised, level=level).at_most
        if at_most <= goal:
            return Narrowing(factor, at_most)
    return None
