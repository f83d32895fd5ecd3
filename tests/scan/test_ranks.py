"""A model over two processes: the numbers, the hash and the one set of rows of a model in one process."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from rote.store.read import read_run
from tests.scan.scans import Command, TinyLab, scan_arguments

SECONDS = 240
PLANTED = """
import sys, torch
from rote.errors import ModelError
from rote.models.hf import load
from rote.models.probe_forest import probing_forest

torch.set_grad_enabled(False)
model = load(sys.argv[1], tensor_parallel=2, dtype="float32", needs_tokenizer=False)
forest = probing_forest(8, model.vocab_size, model.device)
session = model.open_tree(forest.slots, forest.entries)
session.forward(forest.steps[0].batch)
print("equal", flush=True)
norm = model.model.get_decoder().norm.weight
norm.data.mul_(torch.linspace(0.5, 1.5, len(norm)))  # on this rank alone
try:
    session.forward(forest.steps[0].batch)
except ModelError as error:
    print(error, flush=True)
"""


def in_a_process_of_its_own(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)


@pytest.fixture(scope="module")
def run_of_two(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scan by two ranks, with states handed from session to session."""
    out = tmp_path_factory.mktemp("ranks") / "two"
    arguments = scan_arguments(lab, out, limit=24, device=None, tensor_parallel=2, refine=40)
    done = in_a_process_of_its_own("-m", "rote", *arguments)
    assert done.returncode == 0, done.stderr
    return out


def test_two_ranks_give_the_rows_of_one(lab: TinyLab, run_of_two: Path, rote: Command, tmp_path: Path) -> None:
    outcome = rote(*scan_arguments(lab, tmp_path / "one", limit=24, refine=40))
    assert outcome.code == 0, outcome.err
    one, two = (read_run(path) for path in (tmp_path / "one", run_of_two))
    hashes = [run.manifest["model"]["weights_hash"] for run in (one, two)]
    assert hashes[0] == hashes[1]
    assert [run.manifest["model"]["ranks"] for run in (one, two)] == [1, 2]
    assert two.manifest["device"]["tree_search"] is True
    rows = [pl.read_parquet(path / "results.parquet") for path in (tmp_path / "one", run_of_two)]
    assert rows[0]["window_id"].to_list() == rows[1]["window_id"].to_list()
    assert rows[0]["verdict"].to_list() == rows[1]["verdict"].to_list()
    for name in ("p_verbatim", "mass_lower", "mass_upper"):
        values = [frame[name].explode() if frame[name].dtype == pl.List else frame[name] for frame in rows]
        assert float((values[0] - values[1]).abs().max()) < 1e-6  # type: ignore[arg-type]


def test_one_process_takes_a_run_of_two_for_its_own(lab: TinyLab, run_of_two: Path, rote: Command) -> None:
    outcome = rote(*scan_arguments(lab, run_of_two, limit=24, refine=40))
    assert (outcome.code, "was complete already" in outcome.err) == (0, True), outcome.err


def test_ranks_that_compute_different_numbers_are_noticed(lab: TinyLab) -> None:
    done = in_a_process_of_its_own("-c", PLANTED, lab.model.path)
    assert done.stdout.startswith("equal\nthe 2 ranks of the model computed different numbers"), done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor_parallel": 3}, "num_attention_heads is 4, which 3 ranks cannot share evenly"),
        ({"tensor_parallel": 2, "device": "map"}, "every rank takes its own; leave --device out"),
    ],
)
def test_what_ranks_cannot_do_is_said_before_they_start(
    lab: TinyLab, rote: Command, tmp_path: Path, options: dict[str, object], words: str
) -> None:
    outcome = rote(*scan_arguments(lab, tmp_path / "run", **{"device": None, **options}))
    assert outcome.code == 2
    assert words in outcome.err
