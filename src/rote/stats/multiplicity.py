"""Correction for asking many questions of the same data. NaN p-values (no test was possible) stay NaN, uncounted."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rote.errors import ConfigError

FloatArray = NDArray[np.float64]


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjusted p-values: rejecting those ≤ α makes any false rejection at most α likely, whatever the dependence."""
    values = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(values)
    if values.ndim != 1 or np.any((values[tested] < 0.0) | (values[tested] > 1.0)):
        raise ConfigError("p-values must be one list of numbers between 0 and 1.")
    adjusted = np.full(values.shape, np.nan)
    positions = np.flatnonzero(tested)
    rising = positions[np.argsort(values[positions], kind="stable")]
    left = np.arange(rising.size, 0, -1)
    adjusted[rising] = np.minimum(1.0, np.maximum.accumulate(values[rising] * left))
    return adjusted
