"""The GitHub Action around the gate, shards of SLURM arrays, and datasets by their ids."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from byrote.corpus.read import read_documents
from byrote.errors import ConfigError, TextError
from byrote.scan.options import RunConfig, shard_of_array
from byrote.types import Split
from tests.report.synthetic_run import books, write_run
from tests.scan.scans import Command, TinyLab, scan_arguments

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))


def act(run: Path, folder: Path, **inputs: str) -> tuple[int, str, str]:
    """Run the action's script as a runner does; exit code, outputs and summary."""
    (step,) = ACTION["runs"]["steps"]
    given = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()} | {"run": str(run)}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    values = {name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()}
    command = folder / "byrote"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m byrote "$@"\n')
    command.chmod(0o755)
    places = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "output")}
    environment = os.environ | values | places | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], env=environment, cwd=folder, capture_output=True, text=True
    )
    files = [Path(place) for place in places.values()]
    summary, output = (file.read_text(encoding="utf-8") if file.exists() else "" for file in files)
    return done.returncode, output.strip(), summary


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "candidate", books(3000), seed=1, stride=50)


@pytest.mark.parametrize(
    ("rules", "open_fails", "code", "outcome"),
    [
        ("near=1\nsplit:control verbatim=0", "true", 0, "outcome=pass"),
        ("near=1\nverbatim=0", "true", 1, "outcome=fail"),
        ("near=0.5", "true", 3, "outcome=cannot_tell"),
        ("near=0.5", "false", 0, "outcome=cannot_tell"),
        ("near=$(touch hacked)", "true", 2, ""),
    ],
)
def test_the_action_exits_as_the_gate_judges_and_summarises_it(
    run: Path, tmp_path: Path, rules: str, open_fails: str, code: int, outcome: str
) -> None:
    found = act(run, tmp_path, max_rate=rules, fail_when_open=open_fails)
    assert found[:2] == (code, outcome)
    assert not (tmp_path / "hacked").exists()
    if outcome:
        assert all(f"`{rule}`" in found[2] for rule in rules.split("\n"))
        assert (tmp_path / "byrote-gate.xml").exists()


def array(own: int, first: int, last: int, step: int, count: int) -> dict[str, str]:
    numbers = {"ID": own, "MIN": first, "MAX": last, "STEP": step, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(number) for name, number in numbers.items()}


@pytest.mark.parametrize(("first", "last", "step"), [(0, 7, 1), (1, 8, 1), (10, 30, 10), (3, 3, 1)])
def test_the_tasks_of_an_array_have_every_shard_once(first: int, last: int, step: int) -> None:
    tasks = range(first, last + 1, step)
    shards = [str(shard_of_array(array(own, first, last, step, len(tasks)))) for own in tasks]
    assert shards == [f"{index}/{len(tasks)}" for index in range(len(tasks))]


@pytest.mark.parametrize(
    ("environment", "words"),
    [({}, "no task of a SLURM array"), (array(5, 1, 9, 1, 3), "not evenly spaced"), (array(1, 0, 1, 0, 2), "no task")],
)
def test_an_array_that_cannot_be_shards_is_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shard_of_array(environment)


def test_shard_auto_is_the_shard_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in array(2, 1, 4, 1, 4).items():
        monkeypatch.setenv(name, value)
    assert RunConfig(shard="auto").shard == "1/4"


ROWS = [{"title": "first", "body": "One text of a dataset."}, {"title": "second", "body": "Another text of it."}]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    pytest.importorskip("datasets", reason="datasets is not installed (byrote[datasets])")
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return folder


@pytest.mark.filterwarnings("ignore")
def test_a_dataset_is_streamed_by_split_and_column(dataset: Path) -> None:
    documents = read_documents([f"hf:{dataset}:train:body"], split=Split.TARGET)
    assert [document.text for document in documents] == [row["body"] for row in ROWS]
    assert [document.name for document in documents] == ["letters:train#1", "letters:train#2"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("hf:{}:train:text", "has no column 'text' (it has title, body)"),
        ("hf:{}:test:body", "cannot be read"),
        ("hf:{}:train", "write hf:org/name:split:column"),
    ],
)
def test_a_dataset_that_is_not_there_is_one_sentence(dataset: Path, source: str, words: str) -> None:
    with pytest.raises(TextError) as raised:
        read_documents([source.format(dataset)], split=Split.TARGET)
    assert words in str(raised.value)


@pytest.mark.filterwarnings("ignore")
def test_the_commit_of_a_dataset_of_the_hub_is_read_and_recorded(
    lab: TinyLab, byrote: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (byrote[datasets])")
    hub = pytest.importorskip("huggingface_hub")
    asked: list[Any] = []
    text = (lab.files.targets / "prose-0064-00.txt").read_text(encoding="utf-8")

    class Info:
        sha = "c0ffee"

    monkeypatch.setattr(
        hub.HfApi, "dataset_info", lambda self, name, revision=None: asked.append((name, revision)) or Info
    )
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, **options: asked.append((name, options)) or [{"id": "a", "body": text}]
    )
    out = tmp_path / "run"
    outcome = byrote(*scan_arguments(lab, out, texts=("hf:org/letters@v1:train:body",), limit=2, measures="verbatim"))
    assert outcome.code == 0, outcome.err
    assert asked[0] == ("org/letters", "v1")
    assert ("org/letters", {"split": "train", "revision": "c0ffee", "streaming": True}) in asked
    texts = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["texts"]
    assert texts["letters:train#a"]["source"] == "hf:org/letters@c0ffee:train:body"
