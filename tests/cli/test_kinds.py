"""One viewer for every run: each kind alone and all together through show, report, runs, export and verify-run."""

import json
import re
import shutil
from pathlib import Path

import pytest

from rote.cli.kinds import SECTIONS
from tests.cli.every_kind import MAKERS
from tests.scan.scans import Command

each_kind = pytest.mark.parametrize("kind", SECTIONS)


def test_every_kind_has_a_run_to_be_tested_on() -> None:
    assert set(MAKERS) == set(SECTIONS)


@each_kind
def test_show_and_verify_run_take_every_kind(kind: str, every_kind: dict[str, Path], rote: Command) -> None:
    shown, checked = rote("show", every_kind[kind]), rote("verify-run", every_kind[kind])
    assert (shown.code, checked.code) == (0, 0), shown.err + checked.err
    assert len(shown.out.splitlines()) > 3
    assert re.search(rf"{kind} run \w{{32}}, complete", " ".join(checked.out.split()))


@each_kind
def test_show_gives_json_of_every_kind(kind: str, every_kind: dict[str, Path], rote: Command) -> None:
    shown = rote("show", every_kind[kind], "--json")
    assert shown.code == 0, shown.err
    (entry,) = json.loads(shown.out)
    assert entry["kind"] == kind
    assert entry["headline"]
    if kind == "scan":
        (numbers,) = entry["numbers"].values()
        bracket = numbers["brackets"]["target"]
        assert bracket["certified"] / bracket["windows"] == bracket["low"] <= bracket["high"] <= 1


@each_kind
def test_report_takes_every_kind(kind: str, every_kind: dict[str, Path], rote: Command, tmp_path: Path) -> None:
    outcome = rote("report", every_kind[kind], "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "<h1>" in page
    assert "http://" not in re.sub(r"http://(www\.w3\.org|127\.0\.0\.1)", "", page), "a page asks no network"
    assert list((tmp_path / "page" / "figures").glob("*.svg"))


@pytest.mark.usefixtures("unrendered")
@each_kind
def test_two_runs_of_a_kind_are_shown_and_reported_together(
    kind: str, every_kind: dict[str, Path], rote: Command, tmp_path: Path
) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(every_kind[kind], twin)
    shown = rote("show", every_kind[kind], twin)
    assert shown.code == 0, shown.err
    assert f"2 {kind} runs together" in shown.out
    outcome = rote("report", every_kind[kind], twin, "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    assert "twin" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unrendered")
def test_all_kinds_share_one_page_with_links_to_their_own(
    every_kind: dict[str, Path], rote: Command, tmp_path: Path
) -> None:
    outcome = rote("report", *every_kind.values(), "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count('<section id="part-') == len(every_kind)
    links = re.findall(r'<a href="([^"#]+\.html)">', page)
    assert {link.split("/")[0] for link in links} == {"scan", "audit", "recall"}
    assert all((tmp_path / "page" / link).exists() for link in links)
    shown = rote("show", *every_kind.values())
    assert shown.code == 0, shown.err
    assert all(f"{kind}: " in shown.out for kind in every_kind)


def test_runs_lists_every_kind_with_its_state(
    every_kind: dict[str, Path], rote: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    place = next(iter(every_kind.values())).parent.parent
    rows = {line.split()[0]: line.split() for line in rote("runs", place).out.splitlines()[1:]}
    assert {f"{kind}/run" for kind in every_kind} <= set(rows)
    for kind in every_kind:
        assert rows[f"{kind}/run"][1] == kind
        assert "complete" in rows[f"{kind}/run"]
    shutil.copytree(every_kind["scan"], tmp_path / "runs" / "cut")
    (tmp_path / "runs" / "cut" / "manifest.json").write_text("{", encoding="utf-8")
    (tmp_path / "runs" / "not-a-run").mkdir()
    listed, why = rote("runs", tmp_path / "runs").out.splitlines()[1:]
    assert listed.split()[0] == "cut"
    assert "unreadable" in listed
    assert "manifest.json" in why


def test_folders_that_hold_no_run_are_refused_in_one_sentence(rote: Command, tmp_path: Path) -> None:
    for arguments in (("show", tmp_path), ("report", tmp_path), ("runs", tmp_path / "nowhere")):
        refused = rote(*arguments)
        assert refused.code == 2
        assert refused.err.startswith("error: ")
        assert refused.err.count("\n") == 1
    assert f"No run in {tmp_path}." in rote("runs", tmp_path).out
