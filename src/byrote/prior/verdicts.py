"""Limits of log v̂_s and of the log-ratio, the verdicts they settle, and what a run can settle at all.

There is a sampled interval where the sample can carry it, and a sound one always.

P(s|q) varies over prefixes by many powers of ten, so a few prefixes may carry the whole sum. The usual interval then
covers far less often than its level (bench/prior_coverage.py), and it is withheld. The sound limits assume nothing but
that the draws are independent and probabilities lie in [0, 1]. With a chance of error of at most `tail` each:

    P(s) ≤ u  with  KL(v̂ ‖ u) = log(1/tail)/c      Chernoff and Hoeffding; about log(1/tail)/c for a tiny v̂
    P(s) ≥ the larger of two limits, each at tail/2:
           u  with  KL(v̂ ‖ u) = log(2/tail)/c      close to v̂ once c·v̂ is large
           v̂ · tail/2                               Markov: a mean is rarely many times its expectation

c counts independent prefixes. The reference text is a sample of what people write, also where all of its prefixes are
evaluated: a short one has few stretches that do not overlap, and its limits are wide.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from byrote.prior.draws import DrawnPrefixes
from byrote.report.words import number_from_log
from byrote.stats.intervals import normal_quantile, undefined
from byrote.stats.prior_mean import PriorEstimate
from byrote.types import Interval
from byrote.verdict import PriorVerdict

LEVEL = 0.95
LEAST_EFFECTIVE = 100.0
"""Effective prefixes from which the sampled interval is given; below, its coverage cannot be relied on."""
BISECTIONS = 100


def log_interval(estimate: PriorEstimate) -> Interval:
    """The sampled interval of log P(s): delta method on the logarithm."""
    if estimate.log_mean == -math.inf:
        return undefined("no sampled prefix allows the suffix", level=LEVEL)
    if estimate.effective_prefixes < LEAST_EFFECTIVE:
        reason = (
            f"{estimate.effective_prefixes:.1f} effective prefixes carry the estimate, {LEAST_EFFECTIVE:g} are needed; "
            "draw more prefixes"
        )
        return undefined(reason, level=LEVEL)
    half = normal_quantile(LEVEL) * estimate.relative_error
    return Interval(estimate.log_mean - half, estimate.log_mean + half, LEVEL)


def sound_log_interval(estimate: PriorEstimate) -> Interval:
    """Covers log P(s) with at least the level, whatever the distribution; each end errs with half of the rest."""
    tail = (1.0 - LEVEL) / 2.0
    return Interval(lower_limit(estimate, tail), upper_limit(estimate, tail), LEVEL)


def upper_limit(estimate: PriorEstimate, tail: float) -> float:
    """A logarithm that lies below log P(s) with a chance of at most `tail`."""
    mean, budget = min(math.exp(estimate.log_mean), 1.0), -math.log(tail) / estimate.independent
    return math.log(_bisected(lambda u: u < 1.0 and _divergence(mean, u) <= budget, mean, 1.0))


def lower_limit(estimate: PriorEstimate, tail: float) -> float:
    """A logarithm that lies above log P(s) with a chance of at most `tail`; −inf where nothing is known from below."""
    if estimate.log_mean == -math.inf:
        return estimate.log_mean
    # Markov's limit is a factor 2/tail below the mean. Between it and the mean, Chernoff's may do better.
    mean, farthest = min(math.exp(estimate.log_mean), 1.0), -math.log(tail / 2.0)

    def is_inside(below: float) -> bool:
        divergence = _divergence(mean, mean * math.exp(-below), log_quotient=below)
        return below == 0.0 or divergence <= farthest / estimate.independent

    return estimate.log_mean - _bisected(is_inside, 0.0, farthest)


def _bisected(is_inside: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where `is_inside` ends between the two, seen from outside."""
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2.0
        if is_inside(middle):
            inside = middle
        else:
            outside = middle
    return outside


def ratio_interval(log_conditional: float, prior: Interval) -> Interval:
    """The interval of log P(s|p)/P(s) from that of log P(s): P(s|p) is exact."""
    if not prior.is_defined:
        return prior
    if log_conditional == -math.inf:
        return undefined("the suffix is impossible after its own prefix", level=prior.level)
    return Interval(log_conditional - prior.high, log_conditional - prior.low, prior.level)


def _divergence(p: float, q: float, *, log_quotient: float | None = None) -> float:
    """KL(p ‖ q) of two Bernoulli distributions, q below 1; log(p/q) may be given where q underflows."""
    if p == 0.0:
        return -math.log1p(-q)
    first = p * (math.log(p / q) if log_quotient is None else log_quotient)
    return first if p == 1.0 else first + (1.0 - p) * (math.log1p(-p) - math.log1p(-q))


CONDITIONAL_ANCHORS = ((4, 1e-2), (50, 1e-4))
"""Published thresholds m by suffix length in tokens."""


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
    """The verdict by the ratio alone, whatever P(s|p) is. An undefined end compares as false, so it settles nothing."""
    if ratio.low > threshold.high:
        return PriorVerdict.MEMORIZED
    return PriorVerdict.MERELY_LIKELY if ratio.high <= threshold.low else PriorVerdict.UNSETTLED


def is_extractable(log_conditional: float, least_conditional: float) -> bool:
    return log_conditional > (math.log(least_conditional) if least_conditional else -math.inf)


class PriorForecast(NamedTuple):
    """Of the extractable suffixes: how many can be settled as memorized, and what the others would need."""

    extractable: int
    within_reach: int
    log_largest_ratio: float
    """The highest ratio that the prefixes can show for any of them."""
    prefixes_needed: float
    """Independent prefixes from which all of them are within reach; infinite where no number is enough."""


def forecast(suffixes: Iterable[tuple[float, float, Interval]], drawn: DrawnPrefixes) -> PriorForecast:
    """What a run can settle, before its long pass, of suffixes with their log P(s|p), m and the interval of log n.

    c independent prefixes that never allow a suffix still leave P(s) up to about log(1/tail)/c, so they show no ratio
    above P(s|p) times the inverse of that. Where n's upper end is higher, the suffix cannot be settled as memorized.
    """
    tail = (1.0 - LEVEL) / 2.0
    limits, needed, within_reach = [], [], 0
    for log_p, least_conditional, threshold in suffixes:
        if is_extractable(log_p, least_conditional):
            end = threshold.high if threshold.is_defined else math.inf
            limits.append(largest_shown_ratio(log_p, drawn.independent, tail))
            needed.append(prefixes_to_show(log_p, end, tail))
            within_reach += limits[-1] > end
    return PriorForecast(len(limits), within_reach, max(limits, default=math.nan), max(needed, default=math.nan))


def largest_shown_ratio(log_conditional: float, prefixes: float, tail: float) -> float:
    """The highest lower limit of the log-ratio that so many independent prefixes give: of a suffix they never allow."""
    return log_conditional - math.log(-math.expm1(math.log(tail) / prefixes))


def prefixes_to_show(log_conditional: float, log_ratio: float, tail: float) -> float:
    """From how many prefixes on `largest_shown_ratio` can reach `log_ratio`; infinite where none can."""
    rarest = math.exp(min(log_conditional - log_ratio, 0.0))
    if rarest in (0.0, 1.0):
        return math.inf if rarest == 0.0 else 1.0
    return max(1.0, math.log(tail) / math.log1p(-rarest))


def forecast_sentences(found: PriorForecast, drawn: DrawnPrefixes) -> list[str]:
    """What v̂ rests on, and what this run cannot settle, for the user before the long pass."""
    basis = f"{drawn.independent:,.0f} independent prefixes show no ratio above "
    basis += number_from_log(found.log_largest_ratio)
    missed = found.extractable - found.within_reach
    if not missed:
        return [f"{basis}."] if found.extractable else []
    words = f"{basis}; {missed:,} of the {found.extractable:,} suffixes with P(s|p) > m cannot be settled as memorized."
    if not math.isfinite(found.prefixes_needed):
        advice = "Their n has no upper end; loosen the policy, give other texts with --generic, or set --least-ratio."
        return [words, advice]
    needed = f"All of them would take {number_from_log(math.log(found.prefixes_needed))} prefixes"
    if found.prefixes_needed > drawn.stretches:
        needed += f"; the reference text has {drawn.stretches:,.0f} that do not overlap: give a larger --prior-text"
    return [words, f"{needed}."]
