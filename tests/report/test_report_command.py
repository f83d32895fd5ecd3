"""`byrote report` as a user calls it."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from byrote.cli.commands import report
from byrote.errors import ConfigError
from byrote.report import page as content_page
from byrote.report.content import Cells, Content
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


def test_names_that_a_spreadsheet_would_run_are_inert_in_tables(tmp_path: Path) -> None:
    book = replace(books(2000)[0], name="=cmd|'/C calc'!A0")
    run = write_run(tmp_path / "run", [book], stride=200)
    report(runs=[str(run)])
    with (run / "report" / "tables" / "documents.csv").open(encoding="utf-8", newline="") as file:
        names = {row["document"] for row in csv.DictReader(file)}
    assert names == {f"'{book.name}"}


def test_numbers_in_words_stay_numbers_and_formulas_do_not() -> None:
    cells = Cells("t", "T", ("a", "b"), (("-0.5", "=1+1"), ("+3", "-x"), ("– ", "plain")))
    (table,) = content_page._tables(Content(kind="x", label="x", headline="x", tables=(cells,)), Path("out")).values()
    assert list(csv.reader(table.decode().splitlines()))[1:] == [["-0.5", "'=1+1"], ["+3", "'-x"], ["– ", "plain"]]
