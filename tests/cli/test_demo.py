"""`byrote demo` from end to end, with the tiny model in place of the pocket model."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from byrote.report.summary import headline
from byrote.report.terminal import terminal_text
from byrote.report.view import load_view
from tests.scan.scans import Command, Outcome, TinyLab, make_command

ROW = re.compile(
    r"^ *(?P<group>control: 0|\d+(?:, other edition)?) +(?P<windows>\d+) +(?P<rates>\d+%.*)$", re.MULTILINE
)


@pytest.fixture
def shown(lab: TinyLab, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """The demo over one window a passage, in a pipe of eighty columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("byrote.cli.lab.pocket_model", lambda progress: lab.model)
    byrote: Command = make_command(capsys)
    return byrote("demo", "--out", tmp_path / "demo", "--stride-chars", 1000)


def test_demo_tells_what_was_memorized_and_where_the_report_is(shown: Outcome, lab: TinyLab, tmp_path: Path) -> None:
    assert shown.code == 0, shown.err
    rows = {match["group"]: re.findall(r"(\d+)%", match["rates"]) for match in ROW.finditer(shown.out)}
    assert set(rows) == {"1", "16", "64", "64, other edition", "control: 0"}
    assert rows["control: 0"][0] == "0"
    assert rows["64"][0] == "100"
    page = tmp_path / "demo" / "run" / "report" / "index.html"
    assert f"Report: {page}" in shown.err
    told = terminal_text(headline([load_view(tmp_path / "demo" / "run")])).plain
    assert " ".join(shown.out.split()).startswith(" ".join(told.split()))
    assert page.exists()
    assert list((page.parent / "figures").glob("*.svg"))
    results = pl.read_parquet(tmp_path / "demo" / "run" / "results.parquet")
    assert results.height == len(lab.model.targets) + len(lab.model.controls)
    counted = sum(int(match["windows"]) for match in ROW.finditer(shown.out))
    assert counted == results["shared_with"].is_null().sum(), "the table counts what rates count"
    manifest = json.loads((tmp_path / "demo" / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["texts"]["prose-0064-00.txt"]["copies"] == 64
