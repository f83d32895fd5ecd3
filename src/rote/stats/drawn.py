"""How many of a finite set are marked, when some of it was drawn at random: limits that hold whenever drawing stops.

With k marked among n drawn, in random order and without replacement, the chance of just that sequence is

    L(K) = K (K − 1) … · (N − K)(N − K − 1) … / (N (N − 1) …)        k factors, n − k factors, n factors

if K of all N are marked. Averaged over K = 0 … N it is k! (n − k)! / (n + 1)!. Their quotient, average over L of the
true K, has mean 1 at most at any time, so it ever reaches 1/α with a chance of α at most (Ville): all K with
L(K) > α · average hold together with confidence 1 − α, at whatever moment, for whatever reason the drawing was ended.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from rote.errors import ConfigError

ROUNDING = 1e-9


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
