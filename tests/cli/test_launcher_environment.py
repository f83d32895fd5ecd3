"""Variables that torchrun and cluster launchers set change nothing: every command is a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.scan.scans import TinyLab, scan_arguments

LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SECONDS = 240
"""After which a command counts as one that hangs."""


def run(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    command = [sys.executable, "-m", "byrote", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=kept | environment)


def test_help_is_the_same() -> None:
    alone, launched = run({}, "--help"), run(LAUNCHED, "--help")
    assert (launched.returncode, launched.stdout) == (alone.returncode, alone.stdout)
    assert launched.returncode == 0


@pytest.fixture(scope="module")
def scanned(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("launched")
    for name, environment in (("alone", {}), ("launched", LAUNCHED)):
        done = run(environment, *scan_arguments(lab, folder / name, limit=4))
        assert done.returncode == 0, done.stderr
    return {name: folder / name for name in ("alone", "launched")}


def test_a_scan_has_the_same_rows(scanned: dict[str, Path]) -> None:
    alone, launched = (pl.read_parquet(path / "results.parquet") for path in scanned.values())
    names = ["window_id", "verdict", "token_evals"]
    assert launched.select(names).equals(alone.select(names))
    assert len(launched) == 4


def test_a_gate_says_the_same(scanned: dict[str, Path]) -> None:
    alone, launched = (run(env, "gate", scanned["alone"], "--max-rate", "near=0.5") for env in ({}, LAUNCHED))
    assert (launched.returncode, launched.stdout) == (alone.returncode, alone.stdout)
    assert launched.stdout
