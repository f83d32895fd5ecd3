"""Where the mean of as many new values would lie, for a positive quantity whose logarithm is normal.

A few large values carry such a mean, so that another sample may give quite another one, and an interval of the form
mean ± errors is far too short. The logarithms are taken as normal with unknown centre and spread. That is an assumption
which none can do without: what is too rare to be in the sample may carry the mean.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rote.stats.intervals import check_level
from rote.stats.prior_mean import log_sum
from rote.types import Interval

REPETITIONS = 10_000
MOST_VALUES = 4_000_000


def predicted_log_mean(logs: Sequence[float], *, level: float = 0.95) -> Interval:
    """Covers the log of the mean of as many new independent values with the level, both ends failing equally often.

    Centre and spread are drawn from what the sample leaves open, ȳ + σZ/√k with σ² = (k − 1)s²/χ²_{k−1}, and new values
    from them. The same numbers for the same values: the draws are fixed. Fewer than two values exclude nothing.
    """
    check_level(level)
    values = np.asarray(logs, dtype=np.float64)
    if values.size < 2:
        return Interval(-math.inf, math.inf, level)
    spread = float(values.std(ddof=1))
    means = float(values.mean()) + log_sum(spread * _repetitions(values.size), axis=1) - math.log(values.size)
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high), level)


@lru_cache(maxsize=8)
def _repetitions(size: int) -> NDArray[np.float64]:
    """[repetitions, size]: new values in units of the sample's spread, from its centre."""
    rows = max(2_000, min(REPETITIONS, MOST_VALUES // size))
    generator = np.random.default_rng([size, 3])
    sigma = np.sqrt((size - 1) / generator.chisquare(size - 1, (rows, 1)))
    centre = generator.standard_normal((rows, 1)) / math.sqrt(size)
    return np.asarray(sigma * (centre + generator.standard_normal((rows, size))))
