"""How many more samples would lower the limit of a rate, before anybody waits for them."""

from dataclasses import replace
from typing import NamedTuple

from rote.stats.brackets import Evidence, bracket

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
