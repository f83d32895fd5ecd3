"""Intervals of log v̂_s and of the log-ratio, honest when few prefixes carry the estimate."""

import math

from rote.measures.prior import PriorEstimate
from rote.stats.intervals import student_quantile, undefined
from rote.types import Interval

LEAST_EFFECTIVE = 1.5
"""Below this one prefix carries the estimate, and its spread cannot be judged from the sample."""


def log_interval(estimate: PriorEstimate, *, level: float = 0.95) -> Interval:
    """Delta method on the logarithm, Student's quantile with (effective prefixes − 1) degrees of freedom.

    Many prefixes that contribute alike give the normal interval; the fewer carry the sum, the wider it gets.
    """
    if estimate.log_mean == -math.inf:
        return undefined("no sampled prefix allows the suffix", level=level)
    if estimate.draws < 2:
        return undefined("one draw has no spread", level=level)
    if estimate.effective_prefixes < LEAST_EFFECTIVE:
        return undefined("one prefix carries the estimate; draw more prefixes", level=level)
    half = student_quantile(level, estimate.effective_prefixes - 1.0) * estimate.relative_error
    return Interval(estimate.log_mean - half, estimate.log_mean + half, level)


def ratio_interval(log_conditional: float, estimate: PriorEstimate, *, level: float = 0.95) -> Interval:
    """The interval of log P(s|p)/v̂_s; P(s|p) is exact, so all uncertainty is v̂_s's."""
    prior = log_interval(estimate, level=level)
    if not prior.is_defined or log_conditional == -math.inf:
        reason = prior.reason or "the suffix is impossible after its own prefix"
        return undefined(reason, level=level)
    return Interval(log_conditional - prior.high, log_conditional - prior.low, level)
