"""Several checkpoints in one command: the same windows, one run folder each."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from byrote.errors import ConfigError
from byrote.scan.options import RunConfig, models_named, runs_of
from tests.scan.scans import Command, TinyLab, scan_arguments


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for step in (2, 10, 1):
        (tmp_path / "training" / f"step-{step}").mkdir(parents=True)
    (tmp_path / "training" / "log.txt").write_text("not a model")
    return tmp_path / "training"


def test_a_glob_names_folders_in_the_order_of_their_numbers(checkpoints: Path) -> None:
    found = models_named(str(checkpoints / "*"))
    assert [Path(model).name for model in found] == ["step-1", "step-2", "step-10"]


def test_names_with_commas_come_as_given_and_once() -> None:
    assert models_named("org/small, org/large,org/small") == ["org/small", "org/large"]


def test_a_folder_with_a_comma_in_its_name_is_one_model(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    assert models_named(str(folder)) == [str(folder)]


def test_every_checkpoint_gets_a_run_folder_by_its_name(checkpoints: Path) -> None:
    runs = runs_of(RunConfig(model=str(checkpoints / "step-*"), out="runs/series"))
    assert [run.out for run in runs] == ["runs/series/step-1", "runs/series/step-2", "runs/series/step-10"]
    assert runs_of(RunConfig(model="org/small", out="runs/one")) == [RunConfig(model="org/small", out="runs/one")]


def test_checkpoints_of_one_name_are_fingerprint_their_parents() -> None:
    runs = runs_of(RunConfig(model="first/final,second/final", out="runs"))
    assert [run.out for run in runs] == ["runs/first--final", "runs/second--final"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "nowhere/step-*"}, "matches no folder"),
        ({"model": "../final,./final"}, "have the same names"),
    ],
)
def test_a_series_that_cannot_be_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        runs_of(RunConfig(out="runs", **options))  # type: ignore[arg-type]


def test_a_series_measures_the_same_windows_of_every_model(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    for step in (1, 2):
        shutil.copytree(lab.model.path, tmp_path / f"step-{step}")
    out = tmp_path / "runs"
    outcome = byrote(*scan_arguments(lab, out, model=tmp_path / "step-*", limit=4, measures="verbatim"))
    assert outcome.code == 0, outcome.err
    assert f"byrote report {out / 'step-1'} {out / 'step-2'}" in outcome.err
    rows = [pl.read_parquet(out / name / "results.parquet") for name in ("step-1", "step-2")]
    assert rows[0]["window_id"].to_list() == rows[1]["window_id"].to_list()
