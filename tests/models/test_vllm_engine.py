"""The real vLLM against the same weights in this process: `make test-vllm` installs it and runs these tests."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from byrote.lab.pocket import TINY, make_model
from byrote.progress import SilentProgress
from byrote.scan.options import RunConfig
from byrote.scan.run import scan_to_folder
from byrote.store.read import read_run
from tests.scan.scans import SMALL, TinyLab

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; `make test-vllm` does it"),
    pytest.mark.filterwarnings("ignore"),
]
NATS = 1e-4
OPTIONS: dict[str, Any] = {**SMALL, "device": "auto", "dtype": "float32", "top_k": 30, "limit": 12, "screen": "off"}
START_SECONDS = 600


def scanned(lab: TinyLab, out: Path, model: str, **options: Any) -> list[dict[str, Any]]:
    config = RunConfig(model=model, text=(str(lab.files.targets),), out=str(out), **{**OPTIONS, **options})
    scan_to_folder(config, progress=SilentProgress())
    return read_run(out).results.sort("window_id").to_dicts()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    """As the tiny model, with half as many heads: vLLM's attention on a CPU takes heads of 32 numbers at least."""
    plan = replace(TINY, training=replace(TINY.training, heads=2))
    model = make_model(plan, "wide-heads", tmp_path_factory.mktemp("lab-cache"))
    return TinyLab(model, model.write_texts(tmp_path_factory.mktemp("passages")))


@pytest.fixture(scope="module")
def here(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of the model in this process."""
    return scanned(lab, tmp_path_factory.mktemp("here") / "run", str(lab.model.path))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(folder: Path | str, *arguments: str, port: int | None = None) -> Iterator[str]:
    """vLLM's server on the loopback interface; killed at the end with its engine."""
    port = port or free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--block-size", "32", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server did not start"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def assert_same(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [row["window_id"] for row in rows] == [row["window_id"] for row in expected]
    for one, other in zip(rows, expected, strict=True):
        assert one["log_p_verbatim"] == pytest.approx(other["log_p_verbatim"], abs=NATS)
        assert one["verdict"] == other["verdict"]
        for name in ("mass_lower", "mass_upper"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-6)


def assert_enclosed(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for one, other in zip(rows, expected, strict=True):
        assert one["p_verbatim"] <= other["p_verbatim"] * 1.0001
        assert other["p_verbatim"] <= one["p_verbatim_upper"] * 1.0001
        for edits in range(len(other["mass_lower"])):
            assert one["mass_lower"][edits] <= other["mass_upper"][edits] * 1.0001
            assert other["mass_lower"][edits] <= one["mass_upper"][edits] * 1.0001


def test_inside_this_process(lab: TinyLab, here: list[dict[str, Any]], tmp_path: Path) -> None:
    rows = scanned(lab, tmp_path / "run", f"vllm:{lab.model.path}")
    assert_same(rows, here)
    assert pl.DataFrame(rows)["answers"].sum() == 24


def test_two_workers_share_every_layer(
    lab: TinyLab, here: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")  # vLLM itself finds no cores for two on one NUMA node
    rows = scanned(lab, tmp_path / "run", f"vllm:{lab.model.path}", engine_args=("tensor_parallel_size=2",))
    assert_same(rows, here)


def test_behind_its_server(lab: TinyLab, here: list[dict[str, Any]], tmp_path: Path) -> None:
    with serving(lab.model.path, "--max-logprobs", "30") as url:
        rows = scanned(lab, tmp_path / "run", f"endpoint:{url}", tokenizer=str(lab.model.path), device="cpu")
    assert_same(rows, here)


def test_a_server_with_its_default_list_encloses(lab: TinyLab, here: list[dict[str, Any]], tmp_path: Path) -> None:
    with serving(lab.model.path) as url:
        rows = scanned(lab, tmp_path / "run", f"endpoint:{url}", tokenizer=str(lab.model.path), device="cpu")
    assert_enclosed(rows, here)
