"""Budgets: what is measured is the beginning of a random order, and a run goes on where its budget ended."""

from pathlib import Path
from typing import Any

import pytest

from byrote.errors import ConfigError
from byrote.random_order import sample_key
from byrote.scan.options import RunConfig
from byrote.scan.run import Spending
from byrote.store.read import read_run
from tests.scan.scans import Command, TinyLab, scan_arguments
from tests.scan.streams import random_windows

WINDOWS = random_windows(40)
ORDER = sorted(WINDOWS, key=lambda window: sample_key(window.window_id, 0))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_windows_are_begun_until_the_time_is_over() -> None:
    clock = Clock()
    spending, taken = Spending(RunConfig(max_seconds=5), clock=clock), []
    for window in spending.draw(ORDER, ()):
        taken.append(window)
        clock.now += 1
    assert taken == ORDER[:5]
    assert spending.has_left_some
    assert spending.spent == "max-seconds 5"


def test_evaluations_are_counted_as_rows_come() -> None:
    spending, taken = Spending(RunConfig(max_evals=100)), []
    for window in spending.draw(ORDER, ()):
        taken.append(window)
        spending.note({"token_evals": 30})
    assert taken == ORDER[:4]


def test_gaps_that_a_kill_left_are_filled_and_every_opening_gets_further() -> None:
    """Windows 0 and 6 of the order were finished when the process died: 1 to 5 come first, whatever they cost."""
    clock = Clock()
    spending = Spending(RunConfig(max_seconds=1), clock=clock)
    clock.now = 9.0
    finished = {ORDER[0].window_id, ORDER[6].window_id}
    missing = [window for window in ORDER if window.window_id not in finished]
    assert list(spending.draw(missing, finished)) == ORDER[1:6]
    later = Spending(RunConfig(max_seconds=1), clock=clock)
    clock.now = 99.0
    assert list(later.draw(ORDER[7:], [window.window_id for window in ORDER[:7]])) == ORDER[7:8]


def test_without_a_spent_budget_nothing_is_left() -> None:
    spending = Spending(RunConfig(max_seconds=1e9))
    assert list(spending.draw(ORDER, ())) == ORDER
    assert not spending.has_left_some


def test_a_shard_has_no_budget() -> None:
    with pytest.raises(ConfigError, match="a budget stops a whole run"):
        RunConfig(shard="0/2", max_evals=5)


def rows_of(run: Path) -> dict[str, dict[str, Any]]:
    return {row["window_id"]: row for row in read_run(run).results.to_dicts()}


def test_a_stopped_run_is_a_sample_and_goes_on_to_the_same_rows(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    """With a budget no more windows are begun together than share a forward."""
    small: dict[str, Any] = {"limit": 24, "batch_windows": 4, "screen": "off", "slots": 2, "estimate": "off"}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert byrote(*scan_arguments(lab, whole, **small)).code == 0
    command = scan_arguments(lab, stopped, **small, max_evals=300)
    told = byrote(*command)
    assert told.code == 0, told.err
    assert "max-evals 300 is spent" in told.err
    assert "a random sample" in told.err
    manifest = read_run(stopped).manifest
    assert manifest is not None
    measured, left = manifest["totals"]["windows"], manifest["stopped"]["windows_left"]
    assert manifest["totals"]["selection"]["starts"] == {"target": 24}
    assert 0 < measured < 24
    assert measured + left == 24
    expected = rows_of(whole)
    first = sorted(expected, key=lambda window_id: sample_key(window_id, 0))[:measured]
    assert set(rows_of(stopped)) == set(first)
    shown = byrote("show", stopped)
    assert f"{measured} of 24 windows, sampled, seed 0" in " ".join(shown.out.split())
    judged = byrote("gate", stopped, "--max-rate", "verbatim=0.0001")
    assert f"24 windows ({measured} of them drawn)" in " ".join(judged.out.split())
    assert byrote("verify", stopped).code == 0
    for _ in range(24):
        if byrote(*command).err.find("is spent") < 0:
            break
    found = rows_of(stopped)
    assert list(found) == list(expected), "windows are in the order of the texts"
    for window_id, row in found.items():
        # Batches differ, and float32 sums round as their batch has it.
        assert row["mass_lower"] == pytest.approx(expected[window_id]["mass_lower"], rel=1e-4, abs=1e-12)
        assert row["verdict"] == expected[window_id]["verdict"]
    assert "stopped" not in (read_run(stopped).manifest or {})
    assert "was complete already" in byrote(*command).err
