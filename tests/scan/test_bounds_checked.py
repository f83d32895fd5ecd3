"""A scan's check of its own bounds and its answers: the same however it is divided, loud where a bound is wrong."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from byrote.report.summary import check_words
from byrote.report.view import load_view
from byrote.scan.measures.base import Measured
from byrote.scan.pipeline import MeasuredWindow, Pipeline
from byrote.scan.stages.screen import fraction_of
from byrote.store.read import read_run
from byrote.verdict import Bounds
from tests.scan.alike import assert_same_run
from tests.scan.scans import Command, TinyLab, scan_arguments

ANSWERED: dict[str, Any] = {"measures": "verbatim,near", "limit": 40, "screen": "off", "answers": 50}


def is_planted(window_id: str) -> bool:
    return fraction_of(window_id, 1) < 0.1


@pytest.fixture
def wrong_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower bounds of a tenth of the windows are half as large again as they should be."""
    rows = Pipeline.rows

    def planted(pipeline: Pipeline, items: Iterable[Measured]) -> Iterator[MeasuredWindow]:
        def changed() -> Iterator[Measured]:
            for item in items:
                assert item.near is not None
                if is_planted(item.window.window_id):
                    lower = tuple(min(1.0, 1.5 * mass) for mass in item.near.bounds.lower)
                    upper = tuple(map(max, item.near.bounds.upper, lower))
                    item.near = replace(item.near, bounds=Bounds(lower, upper))
                yield item

        return rows(pipeline, changed())

    monkeypatch.setattr(Pipeline, "rows", planted)


def answers_of(run: Path) -> dict[str, Any]:
    manifest = read_run(run).manifest
    assert manifest is not None
    checked: dict[str, Any] = manifest["totals"]["answers"]
    return checked


def test_hits_of_a_scan_lie_between_what_its_bounds_let_expect(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    assert byrote(*scan_arguments(lab, tmp_path / "run", **ANSWERED)).code == 0
    checked, rows = answers_of(tmp_path / "run"), read_run(tmp_path / "run").results
    assert (checked["answers"], checked["contradictions"]) == (50 * len(rows), [])
    for edits, row in enumerate(checked["expected"]):
        assert row["edits"] == edits
        assert row["hits"] == rows["answer_hits"].list.get(edits).sum()
        for side, column in (("at_least", "mass_lower"), ("at_most", "mass_upper")):
            assert row[side] == pytest.approx(50 * rows[column].list.get(edits).sum())
    assert checked["expected"][-1]["hits"] > 50, "or this shows nothing"
    shown = " ".join(byrote("show", tmp_path / "run").out.split())
    words = check_words(load_view(tmp_path / "run"))
    assert words is not None
    assert words.endswith("at no number of edits do they contradict the bounds.")
    assert "The scan checked its own bounds: by them, at least" in shown


@pytest.mark.usefixtures("wrong_bounds")
def test_wrong_bounds_are_an_error_that_names_windows_and_loses_no_row(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    outcome = byrote(*scan_arguments(lab, tmp_path / "run", **ANSWERED))
    told = " ".join(outcome.err.split())
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert "the sampled answers contradict the bounds of" in told
    assert "do not rely on this run" in told
    run = read_run(tmp_path / "run")
    assert len(run.results) == 40
    (contradiction, *_) = answers_of(tmp_path / "run")["contradictions"]
    assert contradiction.split("; windows ")[0] in told
    named = contradiction.partition("; windows ")[2].rstrip(".").split(", ")
    assert named
    assert set(named) <= set(run.results["window_id"])
    planted = run.results.filter(pl.col("window_id").map_elements(is_planted, return_dtype=pl.Boolean))
    assert set(named) & set(planted["window_id"])
    assert "Do not rely on these bounds." in " ".join(byrote("show", tmp_path / "run").out.split())
    assert byrote("verify", tmp_path / "run").code == 0
    again = byrote(*scan_arguments(lab, tmp_path / "run", **ANSWERED))
    assert again.code == 2
    assert " ".join(again.err.split()).endswith(told.split("error: ")[-1])
    assert "complete already" not in again.err


@pytest.mark.usefixtures("wrong_bounds")
def test_wrong_bounds_of_shards_are_an_error_when_they_are_merged(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    folders = [tmp_path / f"shard{index}" for index in range(2)]
    codes = [
        byrote(*scan_arguments(lab, folder, shard=f"{index}/2", **ANSWERED)).code
        for index, folder in enumerate(folders)
    ]
    assert 2 in codes
    merged = byrote("merge", tmp_path / "merged", *folders)
    assert merged.code == 2
    assert "the sampled answers contradict the bounds of" in " ".join(merged.err.split())
    assert len(read_run(tmp_path / "merged").results) == 40


@pytest.mark.parametrize(
    "options", [{"batch_windows": 1, "slots": 2}, {"batch_windows": 7, "slots": 5}, {"windows_per_part": 3}], ids=str
)
def test_answers_do_not_change_with_batches_slots_or_parts(
    lab: TinyLab, byrote: Command, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Rounding may move a draw that falls on an edge: about one in a million does."""
    common = {"limit": 20, "answers": 5, "measures": "near", "estimate": "8", "screen": "auto"}
    found = []
    for name, own in (("one", {}), ("other", options)):
        assert byrote(*scan_arguments(lab, tmp_path / name, **common, **own)).code == 0
        found.append(read_run(tmp_path / name).results)
    columns = ["window_id", "answers", "answer_hits"]
    assert found[0].select(columns).equals(found[1].select(columns))
    assert found[0]["answer_hits"].list.last().sum() > 0
    estimated = [set(each.filter(pl.col("mass_estimate").is_not_null())["window_id"]) for each in found]
    assert estimated[0] == estimated[1]


def test_answers_and_estimates_of_merged_shards_are_those_of_the_run_that_was_never_divided(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    """A number of estimates is a number of the whole run's windows, whichever shard draws them."""
    common = {"limit": 30, "answers": 3, "measures": "near", "estimate": "10", "residual": 40, "screen": "off"}
    assert byrote(*scan_arguments(lab, tmp_path / "whole", **common)).code == 0
    folders = [tmp_path / f"shard{index}" for index in range(3)]
    for index, folder in enumerate(folders):
        assert byrote(*scan_arguments(lab, folder, shard=f"{index}/3", **common)).code == 0
    assert byrote("merge", tmp_path / "merged", *folders).code == 0
    assert_same_run(tmp_path / "merged", tmp_path / "whole")
    rows = read_run(tmp_path / "whole").results
    drawn = set(rows.filter(pl.col("mass_samples").is_not_null())["window_id"])
    assert drawn == {name for name in rows["window_id"] if fraction_of(name, 0) < 10 / 30}


def test_a_resumed_scan_draws_the_answers_and_estimates_of_one_left_alone(
    lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    """The budget stops it, again and again."""
    common: dict[str, Any] = {"limit": 20, "answers": 3, "measures": "near", "estimate": "10", "screen": "off"}
    assert byrote(*scan_arguments(lab, tmp_path / "whole", **common)).code == 0
    command = scan_arguments(lab, tmp_path / "stopped", **common, batch_windows=4, slots=2, max_evals=200)
    openings = 1
    while "is spent" in byrote(*command).err:
        openings += 1
    assert openings > 1
    columns = ["window_id", "answers", "answer_hits", "mass_samples"]
    whole, stopped = (read_run(tmp_path / name).results.select(columns) for name in ("whole", "stopped"))
    assert stopped.equals(whole)
    assert 0 < whole["mass_samples"].is_not_null().sum() < 20


def test_without_answers_there_are_no_columns_and_no_check(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    arguments = scan_arguments(lab, tmp_path / "run", limit=6, measures="near", answers=0)
    assert byrote(*arguments).code == 0
    run = read_run(tmp_path / "run")
    assert not {"answers", "answer_hits"} & set(run.results.columns)
    assert run.manifest is not None
    assert "answers" not in run.manifest["totals"]
    assert check_words(load_view(tmp_path / "run")) is None
