"""What can be asked of scanned windows, in memory or in a run folder: tables, rates, comparisons."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rote.errors import ConfigError, RunError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from rote.report.rates import Criterion
    from rote.report.view import RunView
    from rote.stats.population import Population


class Scanned(ABC):
    """Rows of scanned windows. docs/columns.md says what every column holds."""

    @abstractmethod
    def to_arrow(self) -> "pa.Table":
        """One row per window as a pyarrow table, columns as in results.parquet."""

    @cached_property
    @abstractmethod
    def _view(self) -> "RunView": ...

    def to_polars(self) -> "pl.DataFrame":
        """One row per window as a polars frame, columns as in results.parquet."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> "pd.DataFrame":
        """One row per window as a pandas frame; needs pandas (`pip install 'rote[pandas]'`)."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "to_pandas needs pandas, which is not installed. Install it with: pip install 'rote[pandas]', or use "
                "to_polars."
            ) from error
        return self.to_arrow().to_pandas()

    def rates(self) -> "pl.DataFrame":
        """One row per split, criterion and ε: hits, rate, and an interval that respects overlapping windows."""
        from rote.report.tables import rates_table

        return rates_table([self._view])

    def compare(self, other: "Scanned") -> "pl.DataFrame":
        """This against `other` on the same target windows: for every criterion and ε both rates, their paired
        difference (other minus this) and its interval, at the larger of both thresholds. A RunError when the windows
        are not the same."""
        import polars as pl

        from rote.report.comparison import compare_runs

        if not isinstance(other, Scanned):
            raise ConfigError(f"compare needs the results of another scan, not {type(other).__name__}.")
        found = compare_runs([self._view, other._view])
        if found.aligned is None:
            raise RunError(found.reason or "The windows of these scans differ.")
        first, second = (part.select(~part.is_control) for part in found.aligned)
        if not len(first):
            raise RunError("There are no target windows to compare.")
        # Below the threshold that a scan was made with, its searches may have stopped.
        threshold = max(self._view.threshold, other._view.threshold)
        return pl.DataFrame(_compared(first, second, threshold), infer_schema_length=None)


def _compared(first: "Population", second: "Population", threshold: float) -> "list[dict[str, Any]]":
    from rote.report.rates import Criterion

    rows = []
    # Not what a search could not rule out: that is about the searches, which stop by τ, and not about the models.
    for criterion in (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR):
        budget = 0 if criterion is Criterion.VERBATIM else min(first.edit_budget, second.edit_budget)
        for edits in range(budget + 1):
            row = _difference(first, second, criterion, edits, threshold)
            rows += [] if row is None else [row]
    return rows


def _difference(
    first: "Population", second: "Population", criterion: "Criterion", edits: int, threshold: float
) -> "dict[str, Any] | None":
    """One row; None where one of the two did not measure the criterion."""
    from rote.report.rates import Criterion, hits_of, places_of
    from rote.stats.compare import Outcomes, compare_rates

    hits = [hits_of(part, criterion, edits=edits, threshold=threshold) for part in (first, second)]
    if any(found is None for found in hits):
        return None
    # Aligned by place and tokens already; the scans may name equal windows differently.
    outcomes = [Outcomes(tuple(first.window_id), np.asarray(found, dtype=np.float64)) for found in hits]
    found = compare_rates(outcomes[0], outcomes[1], places=places_of(first))
    return {
        "criterion": criterion.value,
        "edits": None if criterion is Criterion.VERBATIM else edits,
        "threshold": threshold,
        "windows": found.n,
        "first": found.first,
        "second": found.second,
        "difference": found.difference,
        "interval_low": found.interval.low,
        "interval_high": found.interval.high,
        "p_value": found.p_value,
        "note": found.interval.reason,
    }
