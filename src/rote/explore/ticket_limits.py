"""Intervals for a sampled probability that hold for any number of samples: no normal limit, nothing to estimate.

With S hits in n independent trials, the upper limit is the p at which S or fewer hits still have the chance α, the
lower one the p at which S or more have it (Clopper and Pearson). Trials need not have equal chances: then p is their
mean, and S lies closer to n·p than a binomial count (Hoeffding 1956), so the limits hold all the same.

`rote.stats.intervals` has the same on scipy, for windows; this runs on numpy alone, where samples are drawn.
"""

import math
from functools import lru_cache

import numpy as np

from rote.errors import ConfigError

LEVEL = 0.95


@lru_cache(maxsize=4096)
def upper_limit(hits: int, trials: int, *, alpha: float) -> float:
    """The mean chance of a trial is at most this, with confidence 1 − `alpha`; 1 when every trial hit."""
    if not 0 <= hits <= trials or trials == 0:
        raise ConfigError(f"{hits} hits in {trials} trials give no limit; hits lie between 0 and the trials.")
    if hits == trials:
        return 1.0
    # log P(S = s) at even odds, from s = hits downwards. Terms that no float could hold beside the first are left out.
    counts = np.arange(hits, max(-1, hits - 60 - 12 * math.isqrt(trials)), -1)
    log_terms = np.cumsum(np.log(counts[:-1] / (trials - counts[:-1] + 1)), dtype=np.float64)
    first = math.lgamma(trials + 1) - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
    steps = np.arange(1, len(counts))
    low, high = hits / trials, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        odds = math.log1p(-middle) - math.log(middle)
        tail = 1.0 + float(np.exp(log_terms + steps * odds).sum())
        log_chance = first + trials * math.log1p(-middle) - hits * odds + math.log(tail)
        low, high = (middle, high) if log_chance > math.log(alpha) else (low, middle)
    return high


def lower_limit(hits: int, trials: int, *, alpha: float) -> float:
    """The mean chance of a trial is at least this, with confidence 1 − `alpha`; 0 when none hit."""
    return 1.0 - upper_limit(trials - hits, trials, alpha=alpha)
