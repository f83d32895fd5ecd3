"""A scan of a served model whose process is killed, and resumed."""

import json
import random
import signal
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from byrote.models.hf.model import load
from byrote.models.listed import Prompt
from byrote.models.served.client import PROMPTS_PER_REQUEST
from byrote.models.served.logprobs import key_of
from tests.faults.dying import DyingProcess, Session, said
from tests.loopback.logprobs import Habits, LogprobServer
from tests.scan.scans import TinyLab, scan_arguments

KILLS, CONCURRENCY, PROBE_TOKENS = 3, 2, 8


def asked(server: LogprobServer, first: int = 0) -> list[str]:
    """Keys of what the server worked on, without the few tokens by which it is tried; one place a prompt."""
    prompts = [prompt for prompt in server.seen.prompts[first:] if len(prompt) > PROBE_TOKENS]
    return [key_of(Prompt(prompt, len(prompt) - 1)) for prompt in prompts]


def answered(run: Path) -> set[str]:
    path = run / "answers.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return {key for line in lines for key in json.loads(line).get("rows", {})}


def test_a_killed_scan_of_a_server_resumes_without_asking_again(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, run, drawn = load(str(lab.model.path), device="cpu"), tmp_path / "killed", random.Random(14)
    stage = DyingProcess(lab.model.path)
    with LogprobServer(model, lambda text: model.encode_batch([text])[0].ids, Habits(dialect="llamacpp")) as server:

        def play(out: Path, moment: int = 0) -> tuple[int, int]:
            given = {"tokenizer": lab.model.path, "limit": 2, "screen": "off", "estimate": "off", "ask-twice": 0}
            url, log = f"endpoint:{server.url}", tmp_path / f"{out.name}-{moment}"
            arguments = scan_arguments(lab, out, model=url, concurrency=CONCURRENCY, **given)
            ended = stage(Session(arguments, str(log), moment, counted="files"))
            assert ended.status in (0, -signal.SIGKILL), said(log)
            return ended

        try:
            status, moments = play(tmp_path / "alone")
            assert status == 0
            alone = asked(server)
            began = len(server.seen.prompts)
            for _ in range(KILLS):
                known, seen = answered(run), len(server.seen.prompts)
                assert play(run, drawn.randint(moments // 3, moments // 2))[0] == -signal.SIGKILL
                assert not known & set(asked(server, seen))
                assert known <= answered(run), "an answer was lost"
            known, seen = answered(run), len(server.seen.prompts)
            assert play(run)[0] == 0
            assert not known & set(asked(server, seen))
        finally:
            stage.close()
    assert known, "something was answered before the kills"
    found = Counter(asked(server, began))
    assert set(found) == set(alone)
    repeated = sum(count - 1 for count in found.values())
    assert repeated <= KILLS * CONCURRENCY * PROMPTS_PER_REQUEST, "more than what was in flight came again"
    rows = [pl.read_parquet(folder / "results.parquet") for folder in (run, tmp_path / "alone")]
    assert_frame_equal(*rows, rel_tol=1e-5, abs_tol=1e-12)


def test_a_ceiling_holds_over_openings_that_are_killed(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every opening is killed before or after it counts a request, most of them while the server is being tried."""
    model, run, ceiling = load(str(lab.model.path), device="cpu"), tmp_path / "run", 10
    stage = DyingProcess(lab.model.path)
    with LogprobServer(model, lambda text: model.encode_batch([text])[0].ids) as server:
        given = {"tokenizer": lab.model.path, "limit": 2, "ask-twice": 0, "max-requests": ceiling}
        arguments = scan_arguments(lab, run, model=f"endpoint:{server.url}", **given)
        try:
            statuses = []
            for opening, moment in enumerate((7, 10, 9, 12, 11, 8, 0)):
                log = tmp_path / f"{opening}"
                statuses.append(stage(Session(arguments, str(log), moment, counted="files")).status)
                counted = int((run / ".requests").read_bytes().split()[1]) if (run / ".requests").exists() else 0
                assert server.seen.requests <= counted <= ceiling
        finally:
            stage.close()
        assert server.seen.requests > 0
    assert statuses.count(-signal.SIGKILL) >= 3
    assert statuses[-1] == 2
    assert f"--max-requests {ceiling}" in said(log)
