"""A real llama-server of llama.cpp against the model folder that its file was made from. Start it with
`-ctk f32 -ctv f32` on this machine and name both:

BYROTE_LLAMA_SERVER=http://127.0.0.1:8080 BYROTE_LLAMA_FOLDER=FOLDER pytest tests/models/test_llama_server.py
"""

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.scan.scans import TinyLab, make_command, make_lab, scan_arguments

URL, FOLDER = os.environ.get("BYROTE_LLAMA_SERVER"), os.environ.get("BYROTE_LLAMA_FOLDER")
pytestmark = pytest.mark.skipif(
    not (URL and FOLDER), reason="BYROTE_LLAMA_SERVER and BYROTE_LLAMA_FOLDER do not name a llama-server and its model"
)
NATS = 0.05


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_lab(tmp_path_factory)


@pytest.mark.parametrize("tokenizer", ["folder", "server"])
def test_a_real_server_has_the_numbers_of_the_model(
    tokenizer: str,
    lab: TinyLab,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    byrote = make_command(capsys)
    given: dict[str, Any] = {"limit": 8, "screen": "off", "estimate": "off"}
    folder = FOLDER if tokenizer == "folder" else None
    served = byrote(*scan_arguments(lab, tmp_path / "served", model=f"endpoint:{URL}", tokenizer=folder, **given))
    assert served.code == 0, served.err
    assert byrote(*scan_arguments(lab, tmp_path / "here", model=FOLDER, **given)).code == 0
    ours, theirs = (pl.read_parquet(tmp_path / name / "results.parquet").to_dicts() for name in ("served", "here"))
    assert [row["prefix_ids"] for row in ours] == [row["prefix_ids"] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["log_p_verbatim"] == pytest.approx(other["log_p_verbatim"], abs=NATS)
        assert one["verdict"] == other["verdict"]
