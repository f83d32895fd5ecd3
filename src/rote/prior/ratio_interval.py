"""Intervals of log v̂_s and of the log-ratio: a sampled one where the sample can carry it, and a sound one always.

P(s|q) varies over prefixes by many powers of ten, so a few prefixes may carry the whole sum. The usual interval then
covers far less often than it says (bench/prior_coverage.py), and it is withheld. The sound interval assumes nothing
but that the draws are independent and probabilities lie in [0, 1]:

    P(s) ≥ v̂ · α/2                             Markov: a mean is rarely many times its expectation
    KL(v̂ ‖ P(s)) ≤ log(2/α)/c from above       Chernoff and Hoeffding; about log(2/α)/c for a tiny v̂
"""

import math

from rote.stats.intervals import check_level, normal_quantile, undefined
from rote.stats.prior_mean import PriorEstimate
from rote.types import Interval

LEAST_EFFECTIVE = 100.0
"""Effective prefixes from which the sampled interval is given; below, its coverage cannot be relied on."""
BISECTIONS = 200


def log_interval(estimate: PriorEstimate, *, level: float = 0.95) -> Interval:
    """The sampled interval of log P(s): delta method on the logarithm."""
    if estimate.log_mean == -math.inf:
        return undefined("no sampled prefix allows the suffix", level=level)
    if estimate.effective_prefixes < LEAST_EFFECTIVE:
        reason = (
            f"{estimate.effective_prefixes:.1f} effective prefixes carry the estimate, {LEAST_EFFECTIVE:g} are needed; "
            "draw more prefixes"
        )
        return undefined(reason, level=level)
    half = normal_quantile(level) * estimate.relative_error
    return Interval(estimate.log_mean - half, estimate.log_mean + half, level)


def sound_log_interval(estimate: PriorEstimate, *, level: float = 0.95) -> Interval:
    """Covers log P(s) with at least the level, whatever the distribution. −inf where nothing is known from below."""
    check_level(level)
    tail = (1.0 - level) / 2.0
    low = estimate.log_mean + math.log(tail)
    high = math.log(_upper_mean(math.exp(estimate.log_mean), math.log(1.0 / tail) / estimate.draws))
    return Interval(low, high, level)


def ratio_interval(log_conditional: float, prior: Interval) -> Interval:
    """The interval of log P(s|p)/P(s) from that of log P(s): P(s|p) is exact."""
    if not prior.is_defined:
        return prior
    if log_conditional == -math.inf:
        return undefined("the suffix is impossible after its own prefix", level=prior.level)
    return Interval(log_conditional - prior.high, log_conditional - prior.low, prior.level)


def _upper_mean(mean: float, budget: float) -> float:
    """The largest u ≥ mean with KL(mean ‖ u) ≤ budget, for Bernoulli distributions, by bisection from above."""
    low, high = mean, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        if _divergence(mean, middle) <= budget:
            low = middle
        else:
            high = middle
    return high


def _divergence(p: float, q: float) -> float:
    first = p * math.log(p / q) if p > 0 else 0.0
    if p >= 1.0:
        return first
    return first + (1.0 - p) * (math.log1p(-p) - math.log1p(-q)) if q < 1.0 else math.inf
