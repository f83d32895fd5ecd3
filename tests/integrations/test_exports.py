"""A run's windows in lm-evaluation-harness, and its rates in loggers: the real packages, offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from byrote.errors import ConfigError
from byrote.integrations import loggers
from byrote.report.view import load_view
from tests.report.synthetic_run import books, write_run
from tests.scan.scans import Command, TinyLab, scan_arguments


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "candidate", books(1500), stride=60)


OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def python(code: str, *arguments: object, **environment: object) -> str:
    """In a process of its own: these packages set up threads, loggers and exit handlers when they are imported."""
    given = os.environ | OFFLINE | {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=given, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


EVALUATE = """
import json, sys
import lm_eval
from lm_eval.tasks import TaskManager
folder, model, *tasks = sys.argv[1:]
found = lm_eval.simple_evaluate(
    model="hf", model_args={"pretrained": model, "device": "cpu", "dtype": "float32"}, tasks=tasks, batch_size=8,
    task_manager=TaskManager(include_path=folder, include_defaults=False), bootstrap_iters=0, log_samples=True,
)
accuracy = {sample["doc"]["window_id"]: sample["acc"] for task in tasks for sample in found["samples"][task]}
print(json.dumps([{task: found["results"][task]["acc,none"] for task in tasks}, accuracy]))
"""


def test_lm_eval_runs_the_exported_task_and_agrees_with_greedy(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    run = tmp_path / "scanned"
    texts = (lab.files.targets / "prose-0064-00.txt", lab.files.targets / "prose-0001-00.txt")
    arguments = scan_arguments(lab, run, texts=texts, control=lab.files.controls, limit=6, measures="greedy,verbatim")
    assert byrote(*arguments).code == 0
    outcome = byrote("export", run, "--format", "lm-eval", "--out", tmp_path / "task")
    assert outcome.code == 0, outcome.err
    assert "lm_eval --include_path" in outcome.err
    tasks = ["byrote_scanned_target", "byrote_scanned_control"]
    printed = python(EVALUATE, tmp_path / "task", lab.model.path, *tasks, HF_HOME=tmp_path / "cache")
    shares, accuracy = json.loads(printed.splitlines()[-1])
    rows = pl.read_parquet(run / "results.parquet")
    greedy = {row["window_id"]: row["greedy_levenshtein"] == 0 for row in rows.iter_rows(named=True)}
    assert accuracy.keys() == greedy.keys()
    # A prefix that begins inside a word is cut into other tokens when it stands alone.
    assert sum(accuracy[name] == is_exact for name, is_exact in greedy.items()) >= 0.9 * len(greedy)
    assert shares["byrote_scanned_target"] > shares["byrote_scanned_control"]


def test_numbers_are_the_rates_of_the_run_and_nothing_of_its_texts(run: Path) -> None:
    view = load_view(run)
    numbers, rows = loggers.numbers_of(view), view.results.filter(pl.col("split") == "target")
    assert numbers["target/near"] == pytest.approx((rows["mass_lower"].list.last() >= 0.001).mean())
    assert numbers["target/verbatim"] == pytest.approx((rows["p_verbatim"] >= 0.001).mean())
    assert numbers["target/near_low"] <= numbers["target/near"] <= numbers["target/near_high"]
    assert numbers["control/near"] == 0
    assert numbers["windows"] == len(view.results)
    shown = json.dumps([numbers, loggers.facts_of(view)])
    assert all(document.name not in shown for document in view.documents)
    assert all(document.text is not None and document.text[:20] not in shown for document in view.documents)


EXPORT = (
    "import sys; from byrote.cli.main import main; main(['export', sys.argv[1], '--to', sys.argv[2], '--project', 'p'])"
)


def test_wandb_keeps_the_numbers_offline(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    python(EXPORT, run, "wandb", WANDB_MODE="offline", WANDB_DIR=tmp_path, WANDB_SILENT="true")
    (log,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    content = log.read_bytes()
    assert b"target/near_at_most" in content
    assert books(1500)[0].text[:40].encode() not in content


def test_mlflow_keeps_the_numbers_in_its_database(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="mlflow's database needs sqlalchemy")
    where = f"sqlite:///{tmp_path / 'mlflow.db'}"
    python(EXPORT, run, "mlflow", MLFLOW_TRACKING_URI=where)
    code = (
        "import mlflow, json; (run,) = mlflow.search_runs(search_all_experiments=True, output_format='list'); "
        "print(json.dumps(run.data.metrics))"
    )
    logged = json.loads(python(code, MLFLOW_TRACKING_URI=where).splitlines()[-1])
    assert logged == pytest.approx(loggers.numbers_of(load_view(run)))


def test_trackio_keeps_the_numbers_in_its_folder(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    python(EXPORT, run, "trackio", TRACKIO_DIR=tmp_path / "trackio")
    found = b"".join(path.read_bytes() for path in (tmp_path / "trackio").rglob("*") if path.is_file())
    assert b"target/near_at_most" in found


def test_a_logger_that_is_missing_is_one_sentence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        loggers.log_to("wandb", load_view(run), project="p")


def test_the_hubs_own_reader_takes_the_results(run: Path, byrote: Command, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    if not hasattr(hub, "parse_eval_result_entries"):
        pytest.skip("this huggingface_hub has no evaluation results")
    file = tmp_path / "model" / ".eval_results" / "byrote.yaml"
    outcome = byrote("export", run, "--format", "hub", "--dataset", "org/books@abc", "--out", file)
    assert outcome.code == 0, outcome.err
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    entries = {entry.task_id: entry for entry in hub.parse_eval_result_entries(written)}
    assert hub.eval_result_entries_to_yaml(list(entries.values())) == written
    view = load_view(run)
    rates = {name.replace("target/", "").replace("/", "_"): value for name, value in loggers.numbers_of(view).items()}
    assert entries.keys() == {"greedy", "verbatim", "near", "control_greedy", "control_verbatim", "control_near"}
    assert {name: entry.value for name, entry in entries.items()} == {name: rates[name] for name in entries}
    assert {(entry.dataset_id, entry.dataset_revision) for entry in entries.values()} == {("org/books", "abc")}
    assert "a certified lower bound" in entries["near"].notes
    refused = byrote("export", run, "--format", "hub")
    assert refused.code == 2
    assert "--dataset" in refused.err


@pytest.mark.parametrize("arguments", [("--format", "csv", "--to", "mlflow")])
def test_an_export_goes_to_one_place(run: Path, byrote: Command, arguments: list[str]) -> None:
    outcome = byrote("export", run, *arguments)
    assert outcome.code == 2
    assert "not both" in outcome.err
