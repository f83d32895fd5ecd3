"""One viewer for every run: each kind alone and all together through show, report, runs, export and verify."""

import json
import re
import shutil
from pathlib import Path

import pytest

from byrote.run_kinds import SECTIONS, section_of
from tests.cli.every_kind import MAKERS
from tests.scan.scans import Command, TinyLab, scan_arguments

each_kind = pytest.mark.parametrize("kind", SECTIONS)

SAYS = {
    "scan": ("can be made to reproduce", "near-verbatim", "certified"),
    "mc": ("100 plain samples of 2 windows", "agree with the certified bounds", "95% interval"),
    "prior": ("memorized", "merely likely", "unsettled", "median ratio"),
    "audit": ("gave back 93.3% of book.txt", "280 of", "No control book was asked for"),
    "recall": ("75.0% of novel.txt", "300 of 400", "longest block"),
    "counterfactual": ("Correlation of the cheap ratio", "95% interval", "near-duplicates"),
    "study": ("A study of 2 cells over beam width", "beam 2", "One setting changed"),
}
"""Kind → what its run says, in the terminal and on its page alike."""
ROWS = {"scan": 24, "mc": 2, "prior": 3, "recall": 1, "counterfactual": 8, "study": 2}
"""Kind → rows of its table; an audit has none."""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of few columns are not folded."""
    monkeypatch.setenv("COLUMNS", "200")


def plain(text: str) -> str:
    """Words with one space between them, and `95%`, whatever a terminal or a page puts there."""
    return re.sub(r"(?<=\d) %", "%", " ".join(re.sub(r"<[^>]*>", " ", text).replace("\u00a0", " ").split()))


def test_every_kind_has_a_run_to_be_tested_on() -> None:
    assert set(MAKERS) == set(SECTIONS) == set(SAYS) == {*ROWS, "audit"}


@each_kind
def test_show_and_verify_run_take_every_kind(kind: str, every_kind: dict[str, Path], byrote: Command) -> None:
    shown, checked = byrote("show", every_kind[kind]), byrote("verify", every_kind[kind])
    assert (shown.code, checked.code) == (0, 0), shown.err + checked.err
    assert [words for words in SAYS[kind] if words not in plain(shown.out)] == []
    assert re.search(rf"{kind} run \w{{32}}, complete", " ".join(checked.out.split()))


@each_kind
def test_show_gives_json_of_every_kind(kind: str, every_kind: dict[str, Path], byrote: Command) -> None:
    shown = byrote("show", every_kind[kind], "--json")
    assert shown.code == 0, shown.err
    (entry,) = json.loads(shown.out)
    assert entry["kind"] == kind
    assert entry["headline"]
    if kind == "scan":
        (numbers,) = entry["numbers"].values()
        limit = numbers["limits"]["target"]
        assert limit["certified"] <= limit["at_most"] <= limit["windows"] == limit["certified"] + limit["others"]
        assert limit["hits_among_others"] <= limit["answers_to_others"]
        assert limit["confidence"] == 0.95


@each_kind
def test_report_takes_every_kind(kind: str, every_kind: dict[str, Path], byrote: Command, tmp_path: Path) -> None:
    outcome = byrote("report", every_kind[kind], "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert [words for words in SAYS[kind] if words.lower() not in plain(page).lower()] == []
    assert "http://" not in re.sub(r"http://(www\.w3\.org|127\.0\.0\.1)", "", page), "a page asks no network"
    assert list((tmp_path / "page" / "figures").glob("*.svg"))


@each_kind
def test_export_gives_the_rows_of_every_kind_that_has_some(
    kind: str, every_kind: dict[str, Path], byrote: Command, tmp_path: Path
) -> None:
    outcome = byrote("export", every_kind[kind], "--format", "jsonl", "--out", tmp_path / "rows.jsonl")
    if kind not in ROWS:
        assert outcome.code == 2
        assert f"is a complete {kind} run, and such a run has no table of rows" in outcome.err
        return
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (outcome.code, len(rows)) == (0, ROWS[kind])
    assert len({row["window_id"] for row in rows}) == len(rows)


@pytest.mark.usefixtures("unrendered")
@each_kind
def test_two_runs_of_a_kind_are_shown_and_reported_together(
    kind: str, every_kind: dict[str, Path], byrote: Command, tmp_path: Path
) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(every_kind[kind], twin)
    shown = byrote("show", every_kind[kind], twin)
    assert shown.code == 0, shown.err
    assert (f"2 {kind} runs together" in shown.out) == section_of(kind).is_compared
    outcome = byrote("report", every_kind[kind], twin, "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    assert "twin" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unrendered")
def test_all_kinds_share_one_page_with_links_to_their_own(
    every_kind: dict[str, Path], byrote: Command, tmp_path: Path
) -> None:
    outcome = byrote("report", *every_kind.values(), "--out", tmp_path / "page")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count('<section id="part-') == len(every_kind)
    links = re.findall(r'<a href="([^"#]+\.html)">', page)
    assert {link.split("/")[0] for link in links} == {"scan", "audit", "recall"}
    assert all((tmp_path / "page" / link).exists() for link in links)
    shown = byrote("show", *every_kind.values())
    assert shown.code == 0, shown.err
    assert all(f"{kind}: " in shown.out for kind in every_kind)


def test_runs_lists_every_kind_with_its_state(
    every_kind: dict[str, Path], byrote: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    place = next(iter(every_kind.values())).parent.parent
    rows = {line.split()[0]: line.split() for line in byrote("runs", place).out.splitlines()[1:]}
    assert {f"{kind}/run" for kind in every_kind} <= set(rows)
    for kind in every_kind:
        assert rows[f"{kind}/run"][1] == kind
        assert "complete" in rows[f"{kind}/run"]
    shutil.copytree(every_kind["scan"], tmp_path / "runs" / "cut")
    (tmp_path / "runs" / "cut" / "manifest.json").write_text("{", encoding="utf-8")
    (tmp_path / "runs" / "not-a-run").mkdir()
    listed, why = byrote("runs", tmp_path / "runs").out.splitlines()[1:]
    assert listed.split()[0] == "cut"
    assert "unreadable" in listed
    assert "manifest.json" in why


def test_a_folder_of_runs_is_told_from_a_run(byrote: Command, every_kind: dict[str, Path]) -> None:
    refused = byrote("show", every_kind["scan"].parent)
    assert refused.code == 2
    assert f"or byrote runs {every_kind['scan'].parent} for those inside" in " ".join(refused.err.split())


def test_folders_that_hold_no_run_are_refused_in_one_sentence(byrote: Command, tmp_path: Path) -> None:
    for arguments in (("show", tmp_path), ("report", tmp_path), ("runs", tmp_path / "nowhere")):
        refused = byrote(*arguments)
        assert refused.code == 2
        assert refused.err.startswith("error: ")
        assert refused.err.count("\n") == 1
    assert f"No run in {tmp_path}." in byrote("runs", tmp_path).out


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("measures", ["membership", "greedy,membership"])
def test_a_scan_without_probabilities_of_the_text_can_be_seen(
    measures: str, lab: TinyLab, byrote: Command, tmp_path: Path
) -> None:
    run = tmp_path / "scores"
    arguments = scan_arguments(lab, run, limit=12, measures=measures)
    assert byrote(*arguments, "--control", lab.files.controls).code == 0
    shown, written = byrote("show", run), byrote("report", run)
    assert (shown.code, written.code) == (0, 0), shown.err + written.err
    page = plain((run / "report" / "index.html").read_text(encoding="utf-8"))
    for words in ("Min-K %++", "targets from controls best (AUC", "Nothing here says how likely a passage is"):
        assert words in plain(shown.out)
        assert words in page
    assert ("greedy, exact" in page) == ("greedy" in measures)
    assert list((run / "report" / "figures").glob("membership.svg"))
