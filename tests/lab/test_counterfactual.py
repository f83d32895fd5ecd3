"""The counterfactual design: who holds what, exactly; resume; and the test-sized study end to end."""

import itertools
import os
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from byrote.cli.main import lab_app
from byrote.errors import ConfigError, RunError
from byrote.lab import counterfactual as study
from byrote.lab.counterfactual import (
    FULL,
    PUBLISHED_LEVELS,
    QUICK,
    TEST,
    CounterfactualPlan,
    CounterfactualResult,
    ModelSpec,
    correlate,
    correlation,
    models_of,
    near_duplicate,
    run_counterfactual,
    stream_of,
    write_material,
)
from byrote.progress import SilentProgress
from byrote.store.read import read_run
from tests.lab.miniature import MINIATURE


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> CounterfactualResult:
    place = tmp_path_factory.mktemp("study")
    return run_counterfactual(TEST, place / "out", processes=1)


def test_the_published_levels_trade_three_near_duplicates_for_a_copy() -> None:
    assert len(PUBLISHED_LEVELS) == 7
    assert all(3 * copies + near == 180 for copies, near in PUBLISHED_LEVELS)
    assert QUICK.levels == FULL.levels == PUBLISHED_LEVELS
    assert QUICK.near_duplicate_share == FULL.near_duplicate_share == 0.2


@pytest.mark.parametrize("plan", [QUICK, FULL, TEST, MINIATURE], ids=["quick", "full", "test", "miniature"])
def test_every_target_at_every_level_has_models_with_and_without_its_copies(plan: CounterfactualPlan) -> None:
    held = Counter(
        (target, spec.level(target, len(plan.levels)), spec.has_copies(target))
        for spec in models_of(plan)
        for target in range(plan.targets)
    )
    cells = itertools.product(range(plan.targets), range(len(plan.levels)))
    expected = {(*cell, has): plan.repetitions for cell in cells for has in (True, False)}
    assert held == expected


def test_streams_hold_exactly_the_planned_copies_and_near_duplicates() -> None:
    material = write_material(MINIATURE)
    for spec in models_of(MINIATURE):
        stream = Counter(map(tuple, stream_of(MINIATURE, spec)))
        expected_size = MINIATURE.background
        for target, original in enumerate(material.targets):
            copies, near = MINIATURE.levels[spec.level(target, 2)]
            assert stream[original] == (copies if spec.has_copies(target) else 0)
            expected_size += stream[original] + near
        assert stream.total() == expected_size


def test_the_model_without_copies_keeps_the_same_near_duplicates() -> None:
    material = write_material(MINIATURE)
    originals = set(material.targets)
    with_even, with_odd = (
        Counter(tuple(d) for d in stream_of(MINIATURE, ModelSpec(0, 1, side)) if tuple(d) not in originals)
        for side in (0, 1)
    )
    assert with_even == with_odd


def test_near_duplicates_share_a_fifth_of_the_tokens() -> None:
    material = write_material(TEST)
    background = set(material.background)
    spec = ModelSpec(0, 0, 0)
    planted = [d for d in stream_of(TEST, spec) if tuple(d) not in background and tuple(d) not in material.targets]
    overlaps = [max(sum(map(int.__eq__, d, target)) for target in material.targets) for d in planted]
    # 3 of 16 tokens with its own original; another target may agree on more by chance, never the original on fewer.
    assert min(overlaps) >= round(0.2 * 16)
    assert np.mean(overlaps) < 5


@given(
    original=st.lists(st.integers(0, 30), min_size=1, max_size=80),
    donor=st.lists(st.integers(0, 30), min_size=2, max_size=50).filter(lambda donor: len(set(donor)) > 1),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_near_duplicate_agrees_in_exactly_the_stated_share(
    original: list[int], donor: list[int], share: float, seed: int
) -> None:
    duplicate = near_duplicate(original, donor, share=share, generator=random.Random(seed))
    assert len(duplicate) == len(original)
    assert sum(a == b for a, b in zip(original, duplicate, strict=True)) == round(share * len(original))
    assert set(duplicate) <= set(original) | set(donor)


def test_material_is_disjoint_and_of_the_planned_length() -> None:
    material = write_material(TEST)
    everything = [*material.targets, *material.background, *material.reference]
    assert {len(ids) for ids in everything} == {2 * TEST.half_tokens}
    assert len(set(everything)) == len(everything)


def test_test_sized_study_agrees_with_counterfactual_memorization(result: CounterfactualResult) -> None:
    assert len(result.cells) == 27
    assert result.agreement.value > 0.5
    assert result.agreement.by_target.low > 0
    assert result.level_correlation > 0.8
    means = study.level_means(result.cells)
    assert means[0]["counterfactual"] < means[1]["counterfactual"]
    assert means[0]["counterfactual"] < means[2]["counterfactual"]
    assert abs(means[0]["counterfactual"]) < 5 < means[2]["counterfactual"]


class Counted(SilentProgress):
    """Keeps what it was started with, and every advance."""

    def __init__(self) -> None:
        self.steps: list[object] = []

    def start(self, total: int, done: int) -> None:
        self.steps.append((total, done))

    def advance(self, windows: int) -> None:
        self.steps.append(windows)


def test_a_study_is_a_run_folder_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    seen = Counted()
    first = run_counterfactual(MINIATURE, out, processes=1, progress=seen)
    assert seen.steps == [(4, 0), 1, 1, 1, 1]
    stored = read_run(out)
    assert stored.kind == "counterfactual"
    assert len(stored.results) == 8
    assert stored.manifest is not None
    assert stored.manifest["totals"]["agreement"]["value"] == first.agreement.value
    assert not (out / "blocks").exists()
    monkeypatch.setattr(study, "measure_models", lambda *_, **__: pytest.fail("a finished model was measured again"))
    again = run_counterfactual(MINIATURE, out, processes=1)
    assert again == first
    with pytest.raises(RunError, match=r"plan\.seed: 0 in the run, 1 now"):
        run_counterfactual(replace(MINIATURE, seed=1), out, processes=1)


def test_an_interrupted_study_goes_on_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_counterfactual(MINIATURE, tmp_path / "whole", processes=1)
    original, calls = study.measure_model, []

    def die_at_third(*arguments: object) -> study.Scores:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(study, "measure_model", die_at_third)
    with pytest.raises(KeyboardInterrupt):
        run_counterfactual(MINIATURE, tmp_path / "out", processes=1)
    resumed = run_counterfactual(MINIATURE, tmp_path / "out", processes=1)
    assert len(calls) == 5
    assert resumed.cells == whole.cells


def killed(*_: object) -> study.Scores:
    """What a worker does when the system ends it."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_killed_worker_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "measure_model", killed)
    with pytest.raises(RunError, match=r"was killed from outside, .* with fewer --processes: finished models are kept"):
        run_counterfactual(MINIATURE, tmp_path / "out", processes=2)


@pytest.mark.slow
def test_processes_give_the_numbers_of_one_process(tmp_path: Path) -> None:
    alone = run_counterfactual(MINIATURE, tmp_path / "alone", processes=1)
    together = run_counterfactual(MINIATURE, tmp_path / "together", processes=2)
    assert together.cells == alone.cells


def test_command_refuses_unknown_presets_and_no_processes(tmp_path: Path) -> None:
    for extra, words in (
        (["--preset", "huge"], "preset is 'huge'; choose quick, full, test"),
        (["--processes", "0"], "processes is 0"),
    ):
        shown = CliRunner().invoke(lab_app, ["counterfactual", "--out", str(tmp_path / "out"), *extra])
        assert isinstance(shown.exception, ConfigError)
        assert words in str(shown.exception)


def test_command_prints_levels_and_the_correlation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byrote.cli.lab.PRESETS", {"quick": MINIATURE})
    options = ["counterfactual", "--out", str(tmp_path / "out"), "--processes", "1"]
    shown = CliRunner().invoke(lab_app, options, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "near-duplicates" in shown.output
    assert "correlation of log ratio" in shown.output


POINTS = st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=3, max_size=20)


@given(POINTS)
def test_correlation_equals_scipys(points: list[tuple[float, float]]) -> None:
    x, y = np.array(points).T
    if x.std() > 1e-6 and y.std() > 1e-6:
        assert correlation(x, y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic, abs=1e-9)


def test_interval_by_target_covers_the_true_correlation() -> None:
    # Targets shift all of their cells together. 200 studies of 30 targets: the percentile interval is slightly
    # short at 30 targets, and a coverage of 0.94 falls below 0.88 by chance in about 1 of 1,000 runs; seeded.
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        shift = rng.normal(size=(30, 1, 2))
        noise = rng.normal(size=(30, 4, 2))
        base = rng.normal(size=(30, 4, 1))
        x, y = np.moveaxis(shift + noise + 2 * base, -1, 0).reshape(2, -1)
        found = correlate(x, y, np.repeat(np.arange(30), 4).tolist(), generator=rng, resamples=200)
        covered += found.by_target.low <= 4 / 6 <= found.by_target.high
    assert covered / 200 > 0.88


def test_undefined_correlations_say_why() -> None:
    flat = correlate([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [0, 1, 2], generator=np.random.default_rng(0))
    assert np.isnan(flat.value)
    assert flat.by_target.reason == "the cells do not vary"
    single = correlate([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 2.0, 3.0], [0] * 4, generator=np.random.default_rng(0))
    assert single.by_target.reason == "one target cannot be resampled"
