"""How much of the verbatim mass a search finds by itself, against teacher forcing, which knows it.

A search that keeps no pinned path can lose the target although it has the probability to be found. Windows with
p_z ≥ τ are the ones that matter: below τ a stop rule may have ended the search on purpose.
"""

from typing import NamedTuple

import numpy as np

from rote.stats.population import Floats

FOUND = 0.5
"""A target that was found has a ratio of 1 up to rounding, one that was lost has 0; this parts the two."""


class Recovery(NamedTuple):
    """Of the searched windows with p_z ≥ τ: in how many the search found the target, and how its mass compares."""

    windows: int
    found: int
    median: float
    """Median of found / p_z; NaN without windows."""
    largest_difference: float
    """Largest |found / p_z − 1| over the windows in which the target was found: rounding. NaN when there are none."""

    @property
    def share(self) -> float:
        return self.found / self.windows if self.windows else float("nan")


def recovery(search_verbatim: Floats, p_verbatim: Floats, threshold: float) -> Recovery:
    """`search_verbatim` is NaN where a window was not searched."""
    rows = ~np.isnan(search_verbatim) & (p_verbatim >= threshold)
    ratios = search_verbatim[rows] / p_verbatim[rows]
    found = ratios[ratios > FOUND]
    return Recovery(
        windows=len(ratios),
        found=len(found),
        median=float(np.median(ratios)) if len(ratios) else float("nan"),
        largest_difference=float(np.abs(found - 1).max()) if len(found) else float("nan"),
    )
