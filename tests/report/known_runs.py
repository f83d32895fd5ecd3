"""Runs of table models whose true masses are known, as the report reads them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from byrote.report.view import RunView
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.scan.row import measures_of, results_schema
from byrote.stats.population import population_of
from byrote.store.tables import table_of
from tests.scan.fuzz import random_case, true_masses


class KnownRun(NamedTuple):
    """The rows of a scan, its options, and the true mass of every window within the edit budget."""

    rows: list[dict[str, Any]]
    config: RunConfig
    masses: dict[str, float]

    @property
    def true_count(self) -> int:
        """Windows that are extractable in truth."""
        return sum(mass >= self.config.threshold for mass in self.masses.values())

    @property
    def mean_mass(self) -> float:
        return sum(self.masses.values()) / len(self.masses)

    def view(self, rows: list[dict[str, Any]] | None = None) -> RunView:
        """All windows, or a sample of them."""
        taken = self.rows if rows is None else rows
        frame = pl.from_arrow(table_of(taken, results_schema(measures_of(self.config))))
        assert isinstance(frame, pl.DataFrame)
        selection = {"kind": "all" if rows is None else "sample", "starts": {"target": len(self.rows)}}
        manifest = {"config": self.config.as_dict(), "model": {"name": "table"}, "totals": {"selection": selection}}
        population = population_of(frame, self.config.distance)
        return RunView("table", Path("table"), manifest, frame, None, (), population, is_complete=True)

    def sample(self, count: int, generator: np.random.Generator) -> RunView:
        return self.view([self.rows[place] for place in generator.permutation(len(self.rows))[:count]])


def known_run(number: int, **changes: Any) -> KnownRun:
    """100 windows through the pipeline; the screen leaves out most of them, extractable ones too."""
    case = random_case(number, windows_of_a_group=20)
    options = {
        "estimate": "off", "residual": None, "threshold": 0.2, "screen": "auto", "screen_floor": 0.999,
        "screen_share": 0.3, "screen_min_windows": 0, "answers": 20, "measures": ("verbatim", "near"),
        "verify": False, "closure": 0, "refine": 0,
    }  # fmt: skip
    config = replace(case.config, **(options | changes))
    rows = [measured.row for measured in Pipeline(case.model, config, decode=str).run(case.windows)]
    truths = true_masses(case, case.trees)
    return KnownRun(rows, config, {row["window_id"]: float(truths[row["window_id"]][-1]) for row in rows})
