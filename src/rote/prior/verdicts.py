"""Memorized, or merely likely: what the thresholds m and n say about a suffix, and when that is settled.

    prior-aware memorized      P(s|p) > m  and  P(s|p)/P(s) > n
    merely likely              P(s|p) > m  and  P(s|p)/P(s) ≤ n

P(s|p) and m are exact. The ratio and n are estimates with intervals; the question is settled when these do not meet.
About the n of the generic texts at hand a settled verdict is wrong with a chance of at most 5 % for each suffix: the
ratio's end or n's opposite end must leave out what all prefixes of the reference corpus would give, and each does so
with a chance of at most 2.5 %, whatever the distribution. That n's interval also has room for other generic texts rests
on log-normal ratios (`calibration.py`), and no chance of error is stated for those.
"""

import math
from enum import StrEnum

from rote.types import Interval

CONDITIONAL_ANCHORS = ((4, 1e-2), (50, 1e-4))
"""Published thresholds m by suffix length in tokens."""


class PriorVerdict(StrEnum):
    """What the two thresholds say about a suffix."""

    MEMORIZED = "memorized"
    """P(s|p) > m and the ratio > n."""
    MERELY_LIKELY = "merely_likely"
    """P(s|p) > m, but the suffix is about as likely after other prefixes."""
    UNSETTLED = "unsettled"
    """P(s|p) > m, but ratio and n are not known well enough to tell."""
    NOT_EXTRACTABLE = "not_extractable"
    """P(s|p) ≤ m."""


def default_least_conditional(suffix_tokens: int) -> float:
    """m for a suffix of this length: 0.01 up to 4 tokens, 1e-4 from 50, a straight line in log m between them."""
    (short, high), (long, low) = CONDITIONAL_ANCHORS
    share = (min(max(suffix_tokens, short), long) - short) / (long - short)
    return math.exp((1 - share) * math.log(high) + share * math.log(low))


def settled_verdict(
    log_conditional: float, ratio: Interval, threshold: Interval, *, least_conditional: float
) -> PriorVerdict:
    """The verdict where the intervals do not meet; `ratio` and `threshold` are logarithms."""
    if not is_extractable(log_conditional, least_conditional):
        return PriorVerdict.NOT_EXTRACTABLE
    return ratio_verdict(ratio, threshold)


def point_verdict(
    log_conditional: float, log_ratio: float, *, least_conditional: float, log_least_ratio: float
) -> PriorVerdict:
    """The published rule: estimates taken as if they were exact. Unsettled where n is undefined (NaN)."""
    point, threshold = Interval(log_ratio, log_ratio), Interval(log_least_ratio, log_least_ratio)
    return settled_verdict(log_conditional, point, threshold, least_conditional=least_conditional)


def ratio_verdict(ratio: Interval, threshold: Interval) -> PriorVerdict:
    """What the ratio alone says, whatever P(s|p) is. An undefined end compares as false, so it settles nothing."""
    if ratio.low > threshold.high:
        return PriorVerdict.MEMORIZED
    return PriorVerdict.MERELY_LIKELY if ratio.high <= threshold.low else PriorVerdict.UNSETTLED


def is_extractable(log_conditional: float, least_conditional: float) -> bool:
    return log_conditional > (math.log(least_conditional) if least_conditional else -math.inf)
