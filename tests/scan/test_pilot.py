"""`byrote plan --model --text`: the time of a scan, extrapolated from windows that are measured here."""

from pathlib import Path

import pytest

from byrote.progress import SilentProgress
from byrote.scan.options import RunConfig
from byrote.scan.pilot import Extrapolation, run_pilot
from tests.scan.scans import Command, TinyLab, scan_arguments


def test_the_cost_of_all_windows_is_that_of_the_pilot_scaled_up() -> None:
    found = Extrapolation(windows=9_000, pilot_windows=300, pilot_seconds=12.0, pilot_token_evals=45_000, device="cpu")
    assert found.windows_per_second == pytest.approx(25.0)
    assert found.token_evals == pytest.approx(1_350_000)
    assert found.device_seconds == pytest.approx(360.0)


@pytest.fixture
def config(lab: TinyLab) -> RunConfig:
    return RunConfig(
        model=str(lab.model.path), text=(str(lab.files.targets),), device="cpu", prefix_tokens=12, suffix_tokens=8,
        stride_chars=60, top_k=10, beam_width=4, edit_budget=2, limit=40, screen_min_windows=10, max_evals=1,
    )  # fmt: skip


def test_a_pilot_measures_as_many_windows_as_it_is_given(config: RunConfig) -> None:
    found = run_pilot(config, pilot_windows=9, progress=SilentProgress())
    assert (found.windows, found.pilot_windows) == (40, 9), "--limit bounds the scan, --max-evals not the pilot"
    assert found.pilot_seconds > 0
    assert found.pilot_token_evals >= 9 * (12 + 8 - 1)


def test_a_pilot_of_more_windows_than_there_are_takes_all(config: RunConfig) -> None:
    found = run_pilot(config, pilot_windows=1_000, progress=SilentProgress())
    assert found.pilot_windows == found.windows == 40


def test_plan_says_that_its_times_are_extrapolated(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, _, _, *options = scan_arguments(lab, tmp_path / "run", limit=40)
    outcome = byrote("plan", *options, "--pilot", 8, "--devices", 4)
    assert outcome.code == 0, outcome.err
    for words in ("40 windows on 4 devices", "extrapolated from 8 windows", "windows per second", "GPU hours", "time"):
        assert words in outcome.out
    assert "Monte Carlo samples" in outcome.out, "as without a model"
    assert list(tmp_path.iterdir()) == [], "the pilot's folder is gone"


def test_a_model_without_a_text_is_refused(lab: TinyLab, byrote: Command) -> None:
    outcome = byrote("plan", "--model", lab.model.path)
    assert outcome.code == 2
    assert "text is missing" in outcome.err
