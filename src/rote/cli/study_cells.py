"""How the cells of a study are measured: each by a scan, with a model that is loaded once for all its cells."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rote.cli.progress import make_progress
from rote.explore.montecarlo import MonteCarloOptions, sample_windows
from rote.models.base import LanguageModel
from rote.models.opening import open_model
from rote.scan.options import RunConfig
from rote.scan.run import scan_to_folder
from rote.scan.source import fitted
from rote.store.columns import window_of
from rote.store.read import read_run
from rote.study.grid import Cell
from rote.study.options import StudyConfig


class _Loaded(NamedTuple):
    given: dict[str, Any]
    model: LanguageModel


class CellRuns:
    """Measures cells one after another, each in the folder it is given, and keeps the model of the last one."""

    def __init__(
        self,
        scans: Mapping[str, RunConfig],
        study: StudyConfig,
        document_facts: Mapping[str, Mapping[str, Any]],
        *,
        fresh: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._scans, self._study, self._document_facts = scans, study, document_facts
        self._fresh, self._tell = fresh, tell
        self._loaded: _Loaded | None = None

    def measure(self, cell: Cell, folder: Path) -> None:
        """Make the cell's run, or resume it. A server, and the workers of a cluster, are opened by the scan itself."""
        config = replace(self._scans[cell.name], out=str(folder))
        with make_progress() as progress:
            is_here = not config.is_served and config.executor == "local"
            with progress.phase(f"loading {config.model}"):
                model = self._model_of(config) if is_here else None
            result = scan_to_folder(
                config,
                progress=progress,
                command_line=sys.argv,
                fresh=self._fresh,
                document_facts=self._document_facts,
                model=model,
            )
        for words in result.notes:
            self._tell(words)

    def sample(self, cell: Cell, folder: Path) -> list[dict[str, Any]]:
        """Sample a few extractable windows of a finished cell, evenly spread from the lightest to the heaviest."""
        config, stored = self._scans[cell.name], read_run(folder).results
        if "mass_lower" not in stored.columns:
            return []
        rows = chosen_rows(stored.rows(named=True), config.threshold, self._study.montecarlo_windows)
        windows = [window_of(row) for row in rows]
        if not windows:
            return []
        sized, model = fitted(config, windows), self._model_of(config)
        options = MonteCarloOptions(
            policy=config.policy,
            distance=config.distance if config.distance != "none" else "levenshtein",
            edit_budget=config.edit_budget,
            samples=self._study.montecarlo_samples,
            replicates=1,
            seed=config.seed,
            stops_when_lost=True,
        )
        sampled = sample_windows(model, windows, options, slots=sized.slots, limits=sized.limits)
        found = {one.window.window_id: one for one in sampled}
        return [_sampled_row(row, found[row["window_id"]].curve) for row in rows]

    def _model_of(self, config: RunConfig) -> LanguageModel:
        wanted = config.loading | {"model": config.model, "compile": config.compile}
        if self._loaded is None or self._loaded.given != wanted:
            self._loaded = None  # before the next one comes: two may not fit
            self._loaded = _Loaded(wanted, open_model(config.model, **config.loading))
        return self._loaded.model


def chosen_rows(rows: Sequence[Mapping[str, Any]], threshold: float, count: int) -> list[Mapping[str, Any]]:
    """`count` extractable target windows at even steps of their rank by mass; all when there are no more."""
    extractable = [row for row in rows if row["split"] == "target" and row["mass_lower"][-1] >= threshold]
    ranked = sorted(extractable, key=lambda row: (row["mass_lower"][-1], row["window_id"]))
    if len(ranked) <= count:
        return ranked
    return [ranked[round((place + 0.5) * len(ranked) / count - 0.5)] for place in range(count)]


def _sampled_row(row: Mapping[str, Any], curve: Sequence[Any]) -> dict[str, Any]:
    return {
        "window_id": row["window_id"],
        "p_verbatim": row.get("p_verbatim"),
        "mass_lower": row["mass_lower"][-1],
        "mass_upper": row["mass_upper"][-1],
        "hits": [point.hits for point in curve],
        "samples": [point.samples for point in curve],
        "evaluations": [float(point.token_evals) for point in curve],
    }
