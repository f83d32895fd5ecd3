"""Policy sweeps of a run: the verbatim rate along top-k, top-p or temperature, all from one teacher-forced pass."""

import re

import numpy as np

from rote.report.figures.curves import SweepSeries
from rote.report.rates import split_rows
from rote.report.view import RunView
from rote.types import Split

SINGLE = re.compile(r"(?P<name>[kpt])=(?P<value>[0-9.eE+-]+)")
SETTINGS = {"k": "top-k", "p": "top-p (nucleus)", "t": "temperature"}


def sweep_series(view: RunView) -> dict[str, list[SweepSeries]]:
    """setting → rates of targets and controls along it; settings that the sweep varies alone at least twice."""
    if "sweep_log_p" not in view.results.columns:
        return {}
    written = [str(policy) for policy in view.config.get("sweep", [])]
    log_p = np.array(view.results["sweep_log_p"].to_list(), dtype=np.float64)  # [windows, policies]
    groups: dict[str, list[tuple[float, int]]] = {}
    for column, text in enumerate(written):
        match = SINGLE.fullmatch(text)
        if match is not None:
            groups.setdefault(match["name"], []).append((float(match["value"]), column))
    return {SETTINGS[name]: _series(view, log_p, sorted(points)) for name, points in groups.items() if len(points) > 1}


def _series(view: RunView, log_p: np.ndarray, points: list[tuple[float, int]]) -> list[SweepSeries]:
    series = []
    for split in Split:
        wanted = split_rows(view.population, split)
        if wanted.any():
            hits = log_p[wanted] >= np.log(view.threshold)
            rates = tuple(float(hits[:, column].mean()) for _, column in points)
            series.append(SweepSeries(split.value, tuple(value for value, _ in points), rates))
    return series
