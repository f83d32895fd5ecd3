"""The real llama-server of llama.cpp against the model that its file was made from. Give the path of the program:

ROTE_LLAMA_SERVER=/path/to/llama-server pytest tests/models/test_llama_server.py
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.models.test_gguf import converter
from tests.scan.scans import TinyLab, make_command, make_lab, scan_arguments

PROGRAM = os.environ.get("ROTE_LLAMA_SERVER")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="ROTE_LLAMA_SERVER does not name a llama-server program")
NATS = 0.05
STARTS_WITHIN_SECONDS = 60


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_lab(tmp_path_factory)


@pytest.fixture(scope="module")
def url(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("llama-server")
    converter().convert(lab.model.path, folder / "tiny.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = ["--host", "127.0.0.1", "--port", str(port), "-c", "1024", "-np", "2", "-ctk", "f32", "-ctv", "f32"]
    with (folder / "log").open("wb") as log:
        started = [str(PROGRAM), "-m", str(folder / "tiny.gguf"), *told]
        server = subprocess.Popen(started, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(port, server, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"llama-server does not answer: {log.read_text(errors='replace')[-2000:]}")


@pytest.mark.parametrize("tokenizer", ["folder", "server"])
def test_a_real_server_has_the_numbers_of_the_model(
    tokenizer: str,
    url: str,
    lab: TinyLab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    rote = make_command(capsys)
    given: dict[str, Any] = {"limit": 8, "screen": "off", "estimate": "none"}
    folder = lab.model.path if tokenizer == "folder" else None
    served = rote(*scan_arguments(lab, tmp_path / "served", model=f"endpoint:{url}", tokenizer=folder, **given))
    assert served.code == 0, served.err
    assert rote(*scan_arguments(lab, tmp_path / "here", **given)).code == 0
    ours, theirs = (pl.read_parquet(tmp_path / name / "results.parquet").to_dicts() for name in ("served", "here"))
    assert [row["prefix_ids"] for row in ours] == [row["prefix_ids"] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["log_p_verbatim"] == pytest.approx(other["log_p_verbatim"], abs=NATS)
        assert one["verdict"] == other["verdict"]
