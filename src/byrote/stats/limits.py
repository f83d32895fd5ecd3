"""How many of the windows left out a search would have found, when an audit draws some kinds more densely.

Windows fall into strata of one density each, and are drawn by keys that are uniform and independent of what is to be
found. Whatever the rule that says how many keys are small enough, two things hold:

    chance π that a window is drawn is known        Σ over found (1 − π)/π is, on average, the number not found
    given the counts, a stratum's sample is random  found in it is hypergeometric, so its limit is exact

Neither asks that windows be independent of each other: what is random is the draw.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from byrote.deferred import Deferred
from byrote.errors import ConfigError
from byrote.stats.intervals import check_level
from byrote.types import Interval

special = Deferred("scipy.special")

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

    P(X ≤ found | M) falls with M.
    """
    if not 0 <= found <= audited <= windows:
        raise ConfigError(f"{found} found in {audited} audited of {windows} windows is impossible.")
    # A rounding must not make the limit smaller than it is.
    least = (1 - level) * (1 - ROUNDING)
    beyond = range(found + 1, windows - (audited - found) + 1)
    return found + bisect_left(beyond, True, key=lambda marked: at_most_found(windows, marked, audited, found) <= least)


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


def drawn_share(marked: int, drawn: int, population: int | None, *, alpha: float) -> Interval:
    """Limits of the share of marked ones in all, both together with confidence 1 − `alpha`. `population` None: not
    known, or without end."""
    if population is not None and drawn >= population:
        return Interval(marked / drawn, marked / drawn, 1 - alpha)
    if not 0 <= marked <= drawn or drawn == 0:
        raise ConfigError(f"{marked} marked of {drawn} drawn is impossible.")
    # A rounding must not make the limits narrower than they are.
    least = math.log(alpha) - math.log(drawn + 1) - ROUNDING
    if population is None:
        return Interval(*_without_end(marked, drawn, least - _log_choose(drawn, marked)), 1 - alpha)
    low, high = marked, population - (drawn - marked)
    best = min(max(round(marked / drawn * population), low), high)
    everything = _log_choose(population, drawn)

    def is_possible(count: int) -> bool:
        chance = _log_choose(count, marked) + _log_choose(population - count, drawn - marked) - everything
        return chance >= least

    first = low + bisect_left(range(low, best), True, key=is_possible)
    last = best + bisect_left(range(best + 1, high + 1), True, key=lambda count: not is_possible(count))
    return Interval(first / population, last / population, 1 - alpha)


def _without_end(marked: int, drawn: int, least: float) -> tuple[float, float]:
    """The same limits with p^k (1 − p)^(n − k) as the chance."""

    def edge(outer: float) -> float:
        inner = marked / drawn
        while (middle := (outer + inner) / 2) not in (outer, inner):
            chance = special.xlogy(marked, middle) + special.xlog1py(drawn - marked, -middle)
            outer, inner = (outer, middle) if chance >= least else (middle, inner)
        return outer

    return edge(0.0), edge(1.0)
