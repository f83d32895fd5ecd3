"""Every command, walked from its arguments to what it says: a new command is not there before it has a step here."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from typer.main import get_command

from byrote.cli import lab as lab_commands
from byrote.cli.main import app
from byrote.store.read import read_run
from tests.scan.scans import Command, TinyLab, scan_arguments


class Walk(NamedTuple):
    """What a step works with."""

    byrote: Command
    lab: TinyLab
    runs: dict[str, Path]
    """Kind → a run of it, made by the command that makes such runs."""
    out: Path

    def says(self, *arguments: object) -> str:
        """What a command that must succeed prints, on one line."""
        outcome = self.byrote(*arguments)
        assert outcome.code == 0, outcome.err
        return " ".join((outcome.out + outcome.err).split())


def command_names() -> list[str]:
    """All commands; those of a group with the group's name before theirs."""
    names = []
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        names += [f"{name} {inner}" for inner in below] or [name]
    return names


def made(kind: str, *columns: str) -> Callable[[Walk], None]:
    """The step of a command that makes runs: the fixture ran it, and its folder holds finished rows."""

    def step(walk: Walk) -> None:
        run = read_run(walk.runs[kind])
        assert run.kind == kind
        assert run.manifest is not None
        assert not run.results.is_empty()
        assert set(columns) <= set(run.results.columns)

    return step


def audited(walk: Walk) -> None:
    findings = json.loads((walk.runs["audit"] / "findings.json").read_text(encoding="utf-8"))
    assert findings["trials"][0]["nv_recall"] > 0.9


def walk_demo(walk: Walk) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_commands, "pocket_model", lambda progress: walk.lab.model)
        said = walk.says("demo", "--out", walk.out / "demo", "--stride-chars", 1000)
    assert "copies in training" in said
    assert "Report: " in said
    assert (walk.out / "demo" / "run" / "report" / "index.html").exists()


def walk_merge(walk: Walk) -> None:
    shards = [walk.out / f"shard-{number}" for number in range(2)]
    for number, shard in enumerate(shards):
        walk.says(*scan_arguments(walk.lab, shard, limit=8, shard=f"{number}/2"))
    walk.says("merge", walk.out / "merged", *shards)
    merged, parts = (
        read_run(walk.out / "merged").results,
        pl.concat([read_run(shard).results for shard in shards]),
    )
    assert sorted(merged["window_id"]) == sorted(parts["window_id"])
    assert "can be made to reproduce" in walk.says("show", walk.out / "merged")


def walk_show(walk: Walk) -> None:
    said = walk.says("show", *walk.runs.values())
    assert all(f"{kind}: " in said for kind in walk.runs)
    assert "n = 1000" in walk.says("show", walk.runs["scan"], "--queries", 1000)
    (entry,) = json.loads(walk.byrote("show", walk.runs["scan"], "--json").out)
    assert entry["numbers"]


def walk_report(walk: Walk) -> None:
    walk.says("report", *walk.runs.values(), "--out", walk.out / "page")
    page = (walk.out / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count('<section id="part-') == len(walk.runs)
    assert "def-nv-recall" in page
    assert "def-prior" in page


def walk_gate(walk: Walk) -> None:
    run, files = walk.runs["scan"], ("--json", walk.out / "gate.json", "--junit", walk.out / "gate.xml")
    passed = walk.byrote("gate", run, "--max-rate", "near=1", "--baseline", run, "--max-increase", "1", *files)
    assert passed.code == 0, passed.out + passed.err
    assert json.loads((walk.out / "gate.json").read_text(encoding="utf-8"))
    assert "<testsuite" in (walk.out / "gate.xml").read_text(encoding="utf-8")
    assert walk.byrote("gate", run, "--max-rate", "near=0").code == 1, "the tiny model has memorized some of its texts"


def walk_change(walk: Walk) -> None:
    said = walk.says("change", walk.runs["scan"], walk.runs["scan"], "--out", walk.out / "page")
    assert "None are newly certified" in said
    assert (walk.out / "page" / "index.html").exists()


def walk_risk(walk: Walk) -> None:
    said = walk.says("risk", walk.runs["scan"], "--queries", 100)
    assert "some passage leaks" in said
    assert "At least: by lower bounds" in said


def walk_runs(walk: Walk) -> None:
    said = walk.says("runs", walk.runs["scan"].parent.parent)
    assert all(f"{kind}/run" in said for kind in walk.runs)
    assert "unfinished" not in said


def walk_export(walk: Walk) -> None:
    walk.says("export", walk.runs["scan"], "--format", "csv", "--out", walk.out / "rows.csv")
    stored = read_run(walk.runs["scan"]).results
    assert pl.read_csv(walk.out / "rows.csv")["p_verbatim"].to_list() == stored["p_verbatim"].to_list()


def walk_plan(walk: Walk) -> None:
    said = walk.says("plan", "--mass", 0.001)
    assert re.search(r"2,995", said), "samples to hit once with 95 %, as tabulated"


def walk_recipes(walk: Walk) -> None:
    assert "pythia-enron" in walk.says("recipes")
    assert "about:" in walk.says("recipes", "pythia-enron")


def walk_verify_run(walk: Walk) -> None:
    for kind, run in walk.runs.items():
        assert f"{kind} run" in walk.says("verify", run)


STEPS: dict[str, Callable[[Walk], None]] = {
    "demo": walk_demo,
    "scan": made("scan", "p_verbatim", "mass_lower", "mass_upper", "verdict"),
    "merge": walk_merge,
    "report": walk_report,
    "show": walk_show,
    "change": walk_change,
    "gate": walk_gate,
    "risk": walk_risk,
    "runs": walk_runs,
    "export": walk_export,
    "plan": walk_plan,
    "recall": made("recall"),
    "audit": audited,
    "prior": made("prior", "prior_verdict", "log_ratio"),
    "mc": made("mc", "mass", "mass_low", "mass_high", "certified_lower"),
    "study": made("study", "settings", "manifest_sha256"),
    "recipes": walk_recipes,
    "verify": walk_verify_run,
    "lab counterfactual": made("counterfactual", "counterfactual"),
}


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("name", command_names())
def test_every_command_can_be_walked(
    name: str,
    byrote: Command,
    lab: TinyLab,
    every_kind: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    STEPS[name](Walk(byrote, lab, every_kind, tmp_path))


def test_every_step_is_of_a_command() -> None:
    assert set(STEPS) == set(command_names())
