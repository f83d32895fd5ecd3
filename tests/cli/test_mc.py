"""`rote mc`: windows of texts and of runs, sampled plainly, beside what the run certified."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rote.cli.mc import mc
from rote.errors import ConfigError, RunError
from rote.store.read import read_run
from tests.scan.scans import SMALL, Command, TinyLab, scan_arguments

app = typer.Typer()
app.command()(mc)
WINDOW = [
    "--prefix-tokens",
    "12",
    "--suffix-tokens",
    "8",
    "--stride-chars",
    "60",
    "--top-k",
    "10",
    "--edit-budget",
    "2",
]


def run_mc(lab: TinyLab, *arguments: object) -> str:
    given = ["--model", lab.model.path, "--device", "cpu", *arguments]
    result = CliRunner().invoke(app, [str(argument) for argument in given], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_windows_of_a_run_are_sampled_with_the_runs_options_and_agree_with_its_bounds(
    lab: TinyLab, rote: Command, tmp_path: Path
) -> None:
    """Each exact interval misses with chance at most 5 %, so all three miss their bounds once in 8,000 runs."""
    assert SMALL["edit-budget"] == 2
    rote(*scan_arguments(lab, tmp_path / "run"))
    out = tmp_path / "mc.json"
    shown = run_mc(lab, "--run", tmp_path / "run", "--sample", 3, "--samples", 200, "--interval", "exact", "--out", out)
    assert "bounds" in shown
    rows = {row["window_id"]: row for row in read_run(tmp_path / "run").results.to_dicts()}
    results = json.loads(out.read_text(encoding="utf-8"))
    assert len(results) == 3
    agreeing = 0
    for result in results:
        low, high = result["estimate"]["interval"]
        row = rows[result["window_id"]]
        agreeing += low <= row["mass_upper"][-1] and row["mass_lower"][-1] <= high
        assert [point["samples"] for point in result["curve"]] == [10, 20, 50, 100, 200]
    assert agreeing >= 1


def test_one_window_of_a_text_by_id_and_its_curve(lab: TinyLab, tmp_path: Path) -> None:
    text = sorted(lab.files.targets.glob("*.txt"))[0]
    out = tmp_path / "mc.json"
    run_mc(lab, "--text", text, *WINDOW, "--sample", 2, "--samples", 20, "--out", out)
    first = json.loads(out.read_text(encoding="utf-8"))[0]
    shown = run_mc(
        lab, "--text", text, *WINDOW, "--window", first["window_id"], "--samples", 20, "--curve", "--out", out
    )
    (again,) = json.loads(out.read_text(encoding="utf-8"))
    assert again == first, "a window's samples depend on nothing but the window and the seed"
    assert shown.count(first["window_id"][:8]) >= 2


def test_bad_input_is_refused(lab: TinyLab, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either --text or --run"):
        run_mc(lab)
    with pytest.raises(ConfigError, match="choose wilson, exact"):
        run_mc(lab, "--text", "book.txt", "--interval", "bayes")
    with pytest.raises(RunError):
        run_mc(lab, "--run", tmp_path / "nothing")
    text = sorted(lab.files.targets.glob("*.txt"))[0]
    with pytest.raises(ConfigError, match="no window of the texts has the id 'nobody'"):
        run_mc(lab, "--text", text, *WINDOW, "--window", "nobody")
