"""Runs in folders with odd names, under ~, through links: every command finds them, and nothing else is touched."""

import os
import stat
from pathlib import Path

import pytest

from byrote.prior.options import PriorConfig
from byrote.scan.options import RunConfig
from tests.scan.scans import Command, TinyLab, scan_arguments

NAMES = ["a [b] *.run", "with  space", "two\nlines", "ünï 漢字", "=1+1", "~", "per%cent #1", "'quote\""]


def small(lab: TinyLab, out: object) -> list[str]:
    return scan_arguments(lab, out, limit=3, measures="verbatim")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_folder_may_have_any_name(lab: TinyLab, byrote: Command, tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    assert byrote(*small(lab, run)).code == 0
    assert "was complete already" in byrote(*small(lab, run)).err
    for command in (["show"], ["report"], ["export", "--format", "csv"], ["verify"]):
        outcome = byrote(command[0], run, *command[1:])
        assert outcome.code == 0, outcome.err
    assert os.listdir(tmp_path) == [name]
    assert {"results.csv", "report", "manifest.json"} <= set(os.listdir(run))


@pytest.mark.parametrize("name", ["runs:2", "file:run"])
def test_a_relative_path_with_a_colon_is_no_address(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = byrote(*scan_arguments(lab, name, limit=3))
    assert outcome.code == 0, outcome.err
    for command in (["show"], ["export", "--format", "csv"], ["verify"], ["runs"]):
        outcome = byrote(command[0], name, *command[1:])
        assert outcome.code == 0, outcome.err
    assert os.listdir(tmp_path) == [name]


def test_the_home_folder_is_meant_by_its_sign(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert byrote(*small(lab, "~/runs/first")).code == 0
    for command in (["show"], ["export", "--format", "jsonl", "--out", "~/rows.jsonl"], ["verify"]):
        assert byrote(command[0], "~/runs/first", *command[1:]).code == 0
    assert sorted(os.listdir(tmp_path / "home")) == ["rows.jsonl", "runs"]
    assert os.listdir(tmp_path) == ["home"]


def test_every_option_that_names_a_place_knows_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert RunConfig(out="~/run").out == "/home/ada/run"
    config = PriorConfig(model="m", prior_text=("t",), out="~/o", run="~/r", generic="~/g")
    assert (config.out, config.run, config.generic) == ("/home/ada/o", "/home/ada/r", "/home/ada/g")
    assert RunConfig(out="./~").out == "./~"
    assert RunConfig(out="~nobody-of-this-name/run").out == "~nobody-of-this-name/run"


def test_a_linked_run_folder_stays_a_link(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    assert byrote(*small(lab, tmp_path / "run")).code == 0
    assert (tmp_path / "run").is_symlink()
    assert (tmp_path / "disk" / "results.parquet").exists()


def test_what_is_no_file_is_never_replaced(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    run, special = tmp_path / "run", tmp_path / "pipe"
    assert byrote(*small(lab, run)).code == 0
    os.mkfifo(special)
    (tmp_path / "link").symlink_to(special)
    words = {special: "is a device, pipe or socket", "/dev/null": "is a device", tmp_path / "link": "is a link"}
    for out, reason in words.items():
        outcome = byrote("export", run, "--format", "csv", "--out", out)
        assert outcome.code == 2
        assert reason in outcome.err
    assert stat.S_ISFIFO(special.stat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_a_run_folder_that_is_a_pipe_is_refused(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for command in (small(lab, tmp_path / "pipe"), ["show", tmp_path / "pipe"], ["verify", tmp_path / "pipe"]):
        assert byrote(*command).code == 2
