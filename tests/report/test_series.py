"""Scans of one training over its steps, against a series worked out by hand."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from byrote.errors import RunError
from byrote.report.analysis.comparison import compare_runs
from byrote.report.analysis.series import Series, by_steps, change_between, series_of, series_rows, window_rows
from byrote.report.content import contents_json
from byrote.report.page import write_page
from byrote.report.summary import headline
from byrote.report.view import RunView, load_view, view_of
from byrote.scan.report import scan_content
from tests.report.synthetic_run import Book, prose, write_run

TAU = 0.001
# Of every window, its (lower, upper) bound within all edits at steps 0, 100 and 300, by hand.
BOUNDS = {
    "first": [(0.0, 0.0005), (0.2, 0.3), (0.4, 0.5)],  # learnt at 100
    "lost": [(0.1, 0.2), (0.1, 0.2), (0.0, 0.0002)],  # known from the start, and ruled out at 300
    "doubtful": [(0.0, 0.0), (0.002, 0.9), (0.0, 1.0)],  # learnt at 100, neither certified nor ruled out at 300
    "never": [(0.0, 0.0), (0.0, 1.0), (0.0009, 1.0)],
}


@pytest.fixture
def base(tmp_path: Path) -> RunView:
    """Four target windows of one document each, and a control."""
    texts = [
        Book(f"{name}.txt", prose(place, 425), copies=copies) for place, (name, copies) in enumerate(COPIES.items())
    ]
    control = Book("unseen.txt", prose(9, 425), split="control", copies=0)
    return load_view(write_run(tmp_path / "run", [*texts, control], seed=1, stride=425))


COPIES = {"first": 16, "lost": 16, "doubtful": 4, "never": 1}


def at_step(base: RunView, place: int, step: int) -> RunView:
    def bounds(row: dict[str, str]) -> dict[str, list[float]]:
        low, high = BOUNDS.get(row["document"].removesuffix(".txt"), [(0.0, 0.0)] * 3)[place]
        return {"mass_lower": [0.0] * 5 + [low], "mass_upper": [0.0] * 5 + [high]}

    columns = pl.DataFrame([bounds(row) for row in base.results.iter_rows(named=True)])
    manifest = {**base.manifest, "training": {"step": step}}
    rows = base.results.with_columns(columns["mass_lower"], columns["mass_upper"])
    return view_of(rows, manifest, path=base.path, texts={}, is_complete=True)


@pytest.fixture
def views(base: RunView) -> list[RunView]:
    return by_steps([at_step(base, place, step) for place, step in ((2, 300), (0, 0), (1, 100))])


def series(views: list[RunView]) -> Series:
    found = series_of(views, compare_runs(views))
    assert found is not None
    return found


def test_steps_are_put_in_order_and_name_the_runs(views: list[RunView]) -> None:
    assert [view.label for view in views] == ["step 0", "step 100", "step 300"]


def test_counts_of_every_step_are_those_worked_out_by_hand(views: list[RunView]) -> None:
    assert [list(row.values()) for row in series_rows(series(views))] == [
        [0, 1, 1, None, None, None],
        [100, 3, 3, 2, 0, 0],
        [300, 1, 3, 0, 2, 1],
    ]


def test_the_fate_of_every_window_is_that_worked_out_by_hand(views: list[RunView]) -> None:
    fates = {row["window_id"].split(".")[0]: list(row.values())[1:] for row in window_rows(series(views))}
    assert fates == {
        "first": [100, 2, 0, True],
        "lost": [0, 2, 1, False],
        "doubtful": [100, 1, 1, False],
        "never": [None, 0, 0, False],
    }


def test_the_headline_of_a_series_has_its_ends_and_its_highest_step(views: list[RunView]) -> None:
    start = "Target passages that come out word for word or nearly so"
    assert headline(views) == f"{start}: 25.0 % from step 0, 25.0 % from step 300 and at most 75.0 % from step 100."


def test_two_steps_alone_change_as_in_the_series(views: list[RunView]) -> None:
    assert change_between(views[1], views[2]) == (0, 2, 1)


def test_a_change_needs_the_same_windows(views: list[RunView]) -> None:
    other = replace(views[1], results=views[1].results.head(2))
    with pytest.raises(RunError, match="windows"):
        change_between(views[0], other)


def test_lines_by_copies_have_the_shares_of_their_windows(views: list[RunView], tmp_path: Path) -> None:
    content = scan_content(views)
    (drawn,) = [one for one in content.draw() if one.name == "extractable-by-step"]
    by_then, at_step, forgotten = drawn.figure.axes[:3]
    shown = {line.get_label(): line.get_ydata().tolist() for line in at_step.get_lines()}
    assert shown == {"copies: 16": [0.5, 1.0, 0.5], "copies: 4": [0.0, 1.0, 0.0], "copies: 1": [0.0, 0.0, 0.0]}
    shown = {line.get_label(): line.get_ydata().tolist() for line in by_then.get_lines()}
    assert shown == {"copies: 16": [0.5, 1.0, 1.0], "copies: 4": [0.0, 1.0, 1.0], "copies: 1": [0.0, 0.0, 0.0]}
    shown = {line.get_label(): line.get_ydata().tolist() for line in forgotten.get_lines()}
    assert shown == {"copies: 16": [0.0, 0.0, 0.5], "copies: 4": [0.0, 1.0]}
    page = write_page([content], tmp_path / "page").page
    assert "Over the steps of training" in page.read_text(encoding="utf-8")
    assert (page.parent / "tables" / "steps-by-window.csv").is_file()
    assert '"step 300"' in contents_json([content])


def test_neighbouring_steps_alone_are_compared_in_pairs(views: list[RunView]) -> None:
    (table,) = [table for table in scan_content(views).tables if table.name == "differences"]
    assert {row[0] for row in table.rows} == {"step 0 → step 100", "step 100 → step 300"}


@pytest.mark.parametrize(
    ("model", "step"),
    [
        ({"name": "runs/checkpoint-500"}, 500),
        ({"name": "org/model", "revision": "step1000"}, 1000),
        ({"name": "org/model-7b"}, None),
        ({"name": "org/model-1.5", "revision": "main"}, None),
    ],
)
def test_checkpoints_name_their_step(base: RunView, model: dict[str, str], step: int | None) -> None:
    assert replace(base, manifest={**base.manifest, "model": model}).training_step == step


def test_runs_of_the_same_step_are_no_series(views: list[RunView]) -> None:
    twice = [views[0], views[0]]
    assert by_steps(twice) == twice
    assert series_of(twice, compare_runs(twice)) is None
