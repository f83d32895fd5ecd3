"""A τ chosen after the scan: a number, or from the run's controls at a stated rate of false positives."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rote.errors import ConfigError
from rote.report.rates import split_rows, units_of
from rote.report.view import ChosenThreshold, RunView
from rote.report.words import integer, percent, plural, probability
from rote.stats.roc import threshold_from_controls
from rote.types import Split

FROM_CONTROL = "from-control="


def with_threshold(view: RunView, text: str | None) -> RunView:
    """The run read at another τ: `0.01`, or `from-control=0.001` for a rate of false positives."""
    if text is None:
        return view
    chosen = _from_controls(view, _rate(text)) if text.startswith(FROM_CONTROL) else _given(view, text)
    return replace(view, chosen_threshold=chosen)


def at_one_threshold(views: Sequence[RunView]) -> list[RunView]:
    """Runs that stand side by side are read at the largest τ of theirs: below its own, a run may have stopped early."""
    largest = max(view.threshold for view in views)
    chosen = ChosenThreshold(largest, f"τ is {probability(largest)} for all runs, the largest that one has.")
    return [view if view.threshold == largest else replace(view, chosen_threshold=chosen) for view in views]


def _rate(text: str) -> float:
    rate = _number(text.removeprefix(FROM_CONTROL), text)
    if not 0 < rate < 1:
        raise ConfigError(f"threshold is {text}; the rate of false positives must be above 0 and below 1.")
    return rate


def _number(digits: str, text: str) -> float:
    try:
        return float(digits)
    except ValueError as error:
        raise ConfigError(f"threshold is {text!r}; write a number such as 0.01, or from-control=0.001.") from error


def _given(view: RunView, text: str) -> ChosenThreshold:
    value = _number(text, text)
    if not 0 < value <= 1:
        raise ConfigError(f"threshold is {text}; it must be above 0 and at most 1.")
    if value < view.run_threshold and _was_cut_short(view):
        raise ConfigError(
            f"threshold is {value:g}, but searches of this run stopped at {view.run_threshold:g}; choose a larger one, "
            "or scan with a smaller --threshold."
        )
    return ChosenThreshold(value, f"τ was chosen as {probability(value)} after the scan.")


def _from_controls(view: RunView, rate: float) -> ChosenThreshold:
    """From the near-verbatim mass at the whole budget, or p_z where no more was measured: what is compared with τ."""
    controls = view.population.select(split_rows(view.population, Split.CONTROL))
    if not len(controls):
        raise ConfigError("threshold from-control needs control windows, and this run has none; scan with --control.")
    found = threshold_from_controls(controls.mass(controls.edit_budget), rate)
    if found.value is None:
        raise ConfigError(f"threshold: {found.reason}. Scan more control text, or state a larger rate.")
    value, whose = found.value, ""
    if value < view.run_threshold and _was_cut_short(view):
        value, whose = view.run_threshold, ", the run's own,"
    reached = int(np.sum(controls.mass(controls.edit_budget) >= value))
    words = (
        f"A further control window reaches τ = {probability(value)}{whose} with probability {percent(rate)} at most; "
        f"{integer(reached)} of {plural(len(controls), 'control window')} did."
    )
    units = units_of(controls).drawn
    if units < len(controls):
        words += f" That takes windows as independent; they overlap and stand for {integer(units)} stretches of text."
    return ChosenThreshold(value, words)


def _was_cut_short(view: RunView) -> bool:
    return view.population.is_cut_short is not None and bool(view.population.is_cut_short.any())
