"""What a run can settle, computed before its long pass.

c draws that never allow a suffix still leave P(s) up to about log(1/tail)/c, so they show no ratio above P(s|p) times
the inverse of that. Where n's upper end is higher, the suffix cannot be settled as memorized, however it comes out.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from byrote.prior.calibration import RatioThreshold
from byrote.prior.draws import DrawnPrefixes
from byrote.prior.verdicts import LEVEL, draws_to_show, is_extractable, largest_shown_ratio
from byrote.report.words import number_from_log

TAIL = (1.0 - LEVEL) / 2.0


class Scored(NamedTuple):
    """A suffix before its prior: log P(s|p), m and n."""

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
    limits, needed, within_reach = [], [], 0
    for log_p, least_conditional, threshold in suffixes:
        if is_extractable(log_p, least_conditional):
            end = threshold.interval.high if threshold.interval.is_defined else math.inf
            limits.append(math.inf if drawn.is_exhaustive else largest_shown_ratio(log_p, drawn.draws, TAIL))
            needed.append(draws_to_show(log_p, end, TAIL))
            within_reach += limits[-1] > end
    return Forecast(len(limits), within_reach, max(limits, default=math.nan), max(needed, default=math.nan))


def forecast_sentences(found: Forecast, drawn: DrawnPrefixes) -> list[str]:
    """What v̂ rests on, and what this run cannot settle, for the user before the long pass."""
    if drawn.is_exhaustive:
        basis = f"All {drawn.draws:,} prefixes of the reference corpus are evaluated, so P(s) over it is exact"
    else:
        basis = f"{drawn.draws:,} draws show no ratio above {number_from_log(found.log_largest_ratio)}"
    missed = found.extractable - found.within_reach
    if not missed:
        return [f"{basis}."]
    words = f"{basis}; {missed:,} of the {found.extractable:,} suffixes with P(s|p) > m cannot be settled as memorized."
    if not math.isfinite(found.draws_needed):
        advice = "Their n has no upper end; loosen the policy, give other texts with --generic, or set --least-ratio."
        return [words, advice]
    needed = f"All of them would take {number_from_log(math.log(found.draws_needed))} draws"
    if drawn.starts is not None and drawn.starts <= found.draws_needed:
        each = -(-drawn.starts // drawn.counts.shape[1])
        needed += f"; --prior-prefixes {each} takes the reference corpus whole, which leaves no such limit"
    return [words, f"{needed}."]
