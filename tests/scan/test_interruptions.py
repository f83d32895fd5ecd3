"""A scan that is killed, stopped or run again ends with the rows of one that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from rote.models.hf_tree import TreeSessionHF
from rote.scan import run as execute
from tests.scan.scans import Command, TinyLab, scan_arguments

DYING = Path(__file__).parent / "dying_scan.py"
PART_WINDOWS = 5
KILLS = 3


def arguments(lab: TinyLab, out: Path) -> list[str]:
    """Few slots, small batches and small parts make many moments."""
    return scan_arguments(lab, out, limit=40, part_windows=PART_WINDOWS, slots=3, batch_windows=1)


class Session(NamedTuple):
    """How a command ended, and how many moments it had if it was not killed."""

    status: int
    moments: int


Stage = Callable[[int, Path, list[str]], Session]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Runs commands in processes that kill themselves at a given moment."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(DYING)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def run(moment: int, log: Path, command: list[str]) -> Session:
            questions.write(json.dumps({"moment": moment, "log": str(log), "arguments": command}) + "\n")
            questions.flush()
            return Session(**json.loads(answers.readline()))

        yield run
        questions.close()


@pytest.fixture(scope="module")
def undisturbed(lab: TinyLab, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that was left alone, and how many moments it had."""
    folder = tmp_path_factory.mktemp("undisturbed")
    session = stage(0, folder / "log", arguments(lab, folder / "run"))
    assert session.status == 0
    return folder / "run", session.moments


def stored_windows(run: Path) -> set[str]:
    parts = sorted((run / "parts").glob("part-*.parquet"))
    return {window for part in parts for window in pl.read_parquet(part)["window_id"]}


def noted(log: Path, what: str) -> list[str]:
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(f"{what} ")]


def assert_same_run(run: Path, expected: Path) -> None:
    for table in ("results.parquet", "continuations.parquet"):
        # Windows that share a forward move each other's numbers by rounding, and by nothing else.
        assert_frame_equal(pl.read_parquet(run / table), pl.read_parquet(expected / table), rel_tol=1e-5, abs_tol=1e-12)


def test_a_scan_killed_three_times_ends_like_one_left_alone(
    lab: TinyLab, stage: Stage, undisturbed: tuple[Path, int], rote: Command, tmp_path: Path
) -> None:
    """Moments are drawn with a seed from the first quarter of the run, so that three sessions cannot finish it."""
    expected, moments = undisturbed
    run = tmp_path / "run"
    drawn = random.Random(20261115)
    for session in range(KILLS):
        before = stored_windows(run)
        log = tmp_path / f"log-{session}"
        killed = stage(drawn.randrange(moments // 12, moments // 4), log, arguments(lab, run))
        assert killed.status == -signal.SIGKILL
        after = stored_windows(run)
        assert before <= after, "a kill must not take away what was finished"
        assert before.isdisjoint(noted(log, "taken")), "a finished window must not be measured again"
        finished = noted(log, "finished")
        assert len(finished) == len(set(finished))
        # Lost is at most the part in flight.
        assert len(set(finished) - after) <= PART_WINDOWS
        assert not (run / "manifest.json").exists()
    assert stored_windows(run), "some kill must come after a part"
    assert rote(*arguments(lab, run)).code == 0
    assert_same_run(run, expected)
    assert not (run / "parts").exists()
    assert not list(run.glob(".*rote-tmp"))


@pytest.mark.parametrize("forwards", [1, 60])
def test_ctrl_c_says_so_and_leaves_a_run_that_resumes(
    lab: TinyLab,
    undisturbed: tuple[Path, int],
    rote: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forwards: int,
) -> None:
    run = tmp_path / "run"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(TreeSessionHF, "forward", InterruptAt(forwards, TreeSessionHF.forward))
            outcome = rote(*arguments(lab, run))
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.code == 130
    assert outcome.out == ""
    assert outcome.err == "stopped; the same command resumes where this one ended.\n"
    assert not (run / "manifest.json").exists()
    assert rote(*arguments(lab, run)).code == 0
    assert_same_run(run, undisturbed[0])


class InterruptAt:
    """A method that gets Ctrl-C in its n-th call."""

    def __init__(self, call: int, method: object) -> None:
        self.left, self.method = call, method

    def __get__(self, session: object, kind: type | None = None) -> object:
        def forward(batch: object) -> object:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
            return self.method(session, batch)  # type: ignore[operator]

        return forward


def test_a_complete_run_is_not_measured_again(
    lab: TinyLab, undisturbed: tuple[Path, int], rote: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = undisturbed
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir() if path.name != ".lock"}
    monkeypatch.setattr(execute, "measure_windows", never)
    outcome = rote(*arguments(lab, run))
    assert outcome.code == 0
    assert "was complete already; nothing was measured" in outcome.err
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir() if path.name != ".lock"} == before


def never(*_: object, **__: object) -> None:
    raise AssertionError("nothing is to be measured")


def test_other_slots_batches_and_parts_belong_to_the_same_run(
    lab: TinyLab, stage: Stage, undisturbed: tuple[Path, int], rote: Command, tmp_path: Path
) -> None:
    """Begun with one grouping, stopped, and finished with another: the same run with the same rows."""
    run = tmp_path / "run"
    killed = stage(undisturbed[1] // 3, tmp_path / "log", arguments(lab, run))
    assert killed.status == -signal.SIGKILL
    assert stored_windows(run)
    other = scan_arguments(lab, run, limit=40, part_windows=100, slots=16, batch_windows=32)
    assert rote(*other).code == 0
    assert_same_run(run, undisturbed[0])


def test_fresh_starts_over(lab: TinyLab, rote: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = scan_arguments(lab, run, measures="verbatim", limit=4)
    assert rote(*first).code == 0
    (run / "notes.md").write_text("mine", encoding="utf-8")
    other = scan_arguments(lab, run, measures="verbatim", limit=6, top_k=5)
    assert rote(*other).code == 2
    assert pl.read_parquet(run / "results.parquet").height == 4
    assert rote(*other, "--fresh").code == 0
    assert pl.read_parquet(run / "results.parquet").height == 6
    assert (run / "notes.md").read_text(encoding="utf-8") == "mine"
