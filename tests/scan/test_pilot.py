"""`byrote plan --model --text`: the time of a scan, extrapolated from windows that are measured here."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.progress import SilentProgress
from byrote.scan.options import RunConfig
from byrote.scan.pilot import Extrapolation, run_pilot
from tests.scan.scans import Command, TinyLab, scan_arguments


def extrapolation(windows: int, pilot: tuple[int, float], fewer: tuple[int, float]) -> Extrapolation:
    return Extrapolation(windows, *pilot, *fewer, pilot_token_evals=150 * pilot[0], device="cpu")


@given(
    fixed=st.floats(0, 100),
    each=st.floats(0.001, 10),
    pilot=st.integers(2, 300),
    windows=st.integers(300, 100_000),
)
def test_a_fixed_cost_is_not_scaled_up(fixed: float, each: float, pilot: int, windows: int) -> None:
    fewer = -(-pilot // 4)
    times = [(count, fixed + each * count) for count in (pilot, fewer)]
    found = extrapolation(windows, times[0], times[1])
    assert found.device_seconds == pytest.approx(fixed + each * windows)
    assert found.windows_per_second == pytest.approx(windows / (fixed + each * windows))
    assert found.token_evals == pytest.approx(150 * windows)


def test_where_the_smaller_pilot_took_as_long_the_cost_is_scaled_up_whole() -> None:
    found = extrapolation(9_000, (300, 12.0), (75, 13.0))
    assert found.device_seconds == pytest.approx(360.0)
    assert extrapolation(1, (1, 2.0), (1, 2.0)).device_seconds == pytest.approx(2.0)


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
