"""`rote report` as a user calls it."""

from pathlib import Path

import pytest

from rote.cli.report import report
from rote.errors import ConfigError
from tests.report.synthetic_run import books, write_run


def test_one_run_writes_its_report_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", books(2000)[:1], stride=200)
    report(runs=[str(run)])
    assert (run / "report" / "index.html").exists()
    printed = capsys.readouterr().out
    assert str(run / "report" / "index.html") in printed
    assert "rates.csv" in printed


def test_several_runs_need_a_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"2 runs were given.*--out"):
        report(runs=[str(tmp_path / "a"), str(tmp_path / "b")])
