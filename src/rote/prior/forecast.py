"""What a run can settle, said before its long pass.

c draws that never allow a suffix still leave P(s) up to about log(1/tail)/c, so they show no ratio above P(s|p) times
the inverse of that. Where n's upper end is higher, the suffix cannot be settled as memorized, however it comes out.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rote.prior.calibration import RatioThreshold
from rote.prior.draws import DrawnPrefixes
from rote.prior.ratio_interval import LEVEL, draws_to_show, largest_shown_ratio
from rote.prior.verdicts import is_extractable
from rote.report.words import number_from_log

TAIL = (1.0 - LEVEL) / 2.0


class Scored(NamedTuple):
    """What is known of a suffix before its prior: P(s|p) exactly, and the thresholds it will be held against."""

    log_conditional: float
    least_conditional: float
    threshold: RatioThreshold


class Forecast(NamedTuple):
    """Of the extractable suffixes: how many can be settled as memorized, and what the others would need."""

    extractable: int
    within_reach: int
    log_largest_ratio: float
    """The highest ratio that the draws can show for any of them; infinite when every prefix is evaluated."""
    draws_needed: float
    """Draws from which all of them are within reach; infinite where no number is enough."""


def forecast(suffixes: Sequence[Scored], drawn: DrawnPrefixes) -> Forecast:
    kept = [one for one in suffixes if is_extractable(one.log_conditional, one.least_conditional)]
    limits = [_limit(one, drawn) for one in kept]
    ends = [one.threshold.interval.high if one.threshold.interval.is_defined else math.inf for one in kept]
    reached = sum(limit > end for limit, end in zip(limits, ends, strict=True))
    needed = [draws_to_show(one.log_conditional, end, TAIL) for one, end in zip(kept, ends, strict=True)]
    return Forecast(len(kept), reached, max(limits, default=math.nan), max(needed, default=math.nan))


def _limit(one: Scored, drawn: DrawnPrefixes) -> float:
    if drawn.is_exhaustive:
        return math.inf
    return largest_shown_ratio(one.log_conditional, drawn.draws, TAIL)


def forecast_sentences(found: Forecast, drawn: DrawnPrefixes) -> list[str]:
    """For people, before they wait: what v̂ rests on, and what this run cannot settle."""
    if drawn.is_exhaustive:
        basis = f"All {drawn.draws:,} prefixes of the reference corpus are evaluated, so P(s) over it is exact"
    else:
        largest = number_from_log(found.log_largest_ratio)
        basis = f"{drawn.draws:,} draws show no ratio above {largest}"
    missed = found.extractable - found.within_reach
    if not missed:
        return [f"{basis}."]
    words = f"{basis}; {missed:,} of the {found.extractable:,} suffixes with P(s|p) > m cannot be settled as memorized."
    if math.isfinite(found.draws_needed):
        needed = f"All of them would take {number_from_log(math.log(found.draws_needed))} draws"
        if drawn.starts is None or drawn.starts > found.draws_needed:
            return [words, f"{needed}."]
        each = -(-drawn.starts // drawn.counts.shape[1])
        return [
            words,
            f"{needed}; --prior-prefixes {each} takes the reference corpus whole, which leaves no such limit.",
        ]
    return [
        words,
        "Their n has no upper end; loosen the policy, give other texts with --generic, or set --least-ratio.",
    ]
