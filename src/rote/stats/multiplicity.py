"""Corrections for asking many questions of the same data. NaN p-values (no test was possible) stay NaN, uncounted."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rote.errors import ConfigError

FloatArray = NDArray[np.float64]


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjusted p-values: rejecting those ≤ α makes any false rejection at most α likely, whatever the dependence."""
    return _adjust(p_values, _holm_sorted)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Adjusted p-values: rejecting those ≤ α keeps the expected share of false rejections at most α.

    Holds for independent or positively dependent tests.
    """
    return _adjust(p_values, _benjamini_hochberg_sorted)


def _holm_sorted(rising: FloatArray) -> FloatArray:
    left = np.arange(rising.size, 0, -1)
    return np.asarray(np.minimum(1.0, np.maximum.accumulate(rising * left)))


def _benjamini_hochberg_sorted(rising: FloatArray) -> FloatArray:
    scaled = rising * rising.size / np.arange(1, rising.size + 1)
    return np.asarray(np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1]))


def _adjust(p_values: ArrayLike, adjust_sorted: Callable[[FloatArray], FloatArray]) -> FloatArray:
    values = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(values)
    if values.ndim != 1 or np.any((values[tested] < 0.0) | (values[tested] > 1.0)):
        raise ConfigError("p-values must be one list of numbers between 0 and 1.")
    adjusted = np.full(values.shape, np.nan)
    if tested.any():
        positions = np.flatnonzero(tested)
        rising = positions[np.argsort(values[positions], kind="stable")]
        adjusted[rising] = adjust_sorted(values[rising])
    return adjusted
