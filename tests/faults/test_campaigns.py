"""The campaigns of bench/faults in short: the same code with other seeds and fewer cases."""

import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest

from byrote.run_kinds import SECTIONS
from tests.scan.scans import TinyLab

CAMPAIGNS = Path(__file__).parents[2] / "bench" / "faults"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location(f"faults_{name}", CAMPAIGNS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


KINDS = ("unfinished shard", "merged run", "unfinished served scan", "audit", "unfinished audit", "unfinished study")


def test_no_fault_of_a_file_is_silent(lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load("flips", monkeypatch).campaign(tmp_path, lab, flips=48, seed=1, kinds=KINDS)
    assert found["wrong"] == []
    assert found["faults"]["bit flipped"] == 48
    assert found["by_kind"].keys() == set(KINDS)
    assert found["readings"]["refused by name"] >= sum(found["faults"].values())
    assert {"answers.jsonl", "journal.jsonl"} <= set(found["files"])


def test_every_kind_of_run_is_in_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = load("flips", monkeypatch).KINDS
    assert {name.removeprefix("unfinished ") for name in kinds} >= set(SECTIONS)


def test_no_endpoint_breaks_an_audit_or_the_opening_of_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load("endpoints", monkeypatch).campaign(cases=8, seed=1, scans=20)
    assert found["examples"] == []
    assert found["hostile_requests"] >= 8


@pytest.mark.slow
def test_no_kill_loses_or_repeats_anything(lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = load("kills", monkeypatch)
    names = {"scan", "prior", "audit", "merge"}
    wanted = {"each_step": 300, "random_cases": 4, "seed": 1, "state": tmp_path / "state.jsonl", "names": names}
    with kills.stage_of(lab, tmp_path, ()) as (stage, places):
        played = kills.run_campaign(stage, lab, tmp_path, places=places, **wanted)
        monkeypatch.setattr(kills.Campaign, "play", None)  # what the state file knows is not done again
        assert kills.run_campaign(stage, lab, tmp_path, places=places, **wanted) == played
    found = kills.summary(played, seed=1)
    assert found["faults"] == []
    assert found["kills"] >= 5
    assert {case.target for case in played} == names


@pytest.mark.slow
def test_every_command_that_is_asked_to_stop_says_so_and_goes_on_later(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("merge", "mc", "report")
    signals = load("signals", monkeypatch)
    found = signals.campaign(lab, tmp_path, moments=1, seed=1, names=names, numbers=[signal.SIGTERM])
    assert found["wrong"] == []
    assert found["by_command"].keys() == set(names)
