"""The campaigns of bench/faults in short: the same code with other seeds and fewer cases."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.faults.dying import DyingProcess
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


def test_no_fault_of_a_file_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load("flips", monkeypatch).campaign(tmp_path, flips=60, seed=1)
    assert found["wrong"] == []
    assert found["faults"]["bit flipped"] == 60
    assert found["readings"]["refused by name"] >= sum(found["faults"].values())


@pytest.mark.slow
def test_no_kill_loses_or_repeats_anything(lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = load("kills", monkeypatch)
    stage = DyingProcess(lab.model.path)
    wanted = {"each_step": 50, "random_cases": 3, "seed": 1, "state": tmp_path / "state.jsonl"}
    try:
        played = kills.run_campaign(stage, lab, tmp_path, **wanted)
        monkeypatch.setattr(kills.Campaign, "play", None)  # what the state file knows is not done again
        assert kills.run_campaign(stage, lab, tmp_path, **wanted) == played
    finally:
        stage.close()
    found = kills.summary(played, seed=1)
    assert found["faults"] == []
    assert found["kills"] >= 9
    assert {case.target for case in played} == {"scan", "prior", "audit"}
