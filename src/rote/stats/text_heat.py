"""How strongly each character of a text is known: the largest value over the windows that cover it."""

from itertools import pairwise

import numpy as np

from rote.stats.population import Floats, Integers


def character_maxima(starts: Integers, ends: Integers, values: Floats, *, length: int) -> Floats:
    """For each character of a text the largest value over the spans that cover it; NaN where none does."""
    heat = np.full(length, np.nan)
    # Painting in ascending order leaves the maximum on top.
    for row in np.argsort(values, kind="stable"):
        heat[starts[row] : ends[row]] = values[row]
    return heat


def stretch_maxima(heat: Floats, stretches: int) -> Floats:
    """The maximum of each of `stretches` equal stretches of a text, at most one per character; NaN where none has a
    value."""
    edges = np.linspace(0, len(heat), min(stretches, len(heat)) + 1).astype(int)
    parts = [heat[start:end] for start, end in pairwise(edges)]
    return np.array([np.nan if np.isnan(part).all() else np.nanmax(part) for part in parts], dtype=np.float64)


def covered_share(heat: Floats, threshold: float) -> float:
    """The share of a text's characters inside at least one suffix whose value reaches τ; NaN for an empty text."""
    return float(np.mean(heat >= threshold)) if len(heat) else float("nan")
