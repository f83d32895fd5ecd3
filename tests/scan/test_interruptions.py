"""A scan that is killed, stopped or run again ends with the rows of one that was left alone."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from byrote.cli.entry import SENTENCE, SIGNALS
from byrote.store.read import read_run
from byrote.store.resume import RunSession
from tests.faults.dying import DyingProcess, Session, Stage, finished, said
from tests.scan.scans import Command, TinyLab, scan_arguments

PART_WINDOWS = 5
KILLS = 3


def arguments(lab: TinyLab, out: Path, windows_per_part: int = PART_WINDOWS) -> list[str]:
    """Few slots, small batches and small parts make many moments."""
    return scan_arguments(lab, out, limit=40, windows_per_part=windows_per_part, slots=3, batch_windows=1)


@pytest.fixture(scope="module")
def stage(lab: TinyLab) -> Iterator[Stage]:
    """Runs commands in processes that get a signal at a given moment."""
    process = DyingProcess(lab.model.path)
    yield process
    process.close()


@pytest.fixture(scope="module")
def undisturbed(lab: TinyLab, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that was left alone, and how many moments it had."""
    folder = tmp_path_factory.mktemp("undisturbed")
    session = stage(Session(arguments(lab, folder / "run"), str(folder / "log")))
    assert session.status == 0
    return folder / "run", session.moments


def stored_windows(run: Path) -> set[str]:
    return set(read_run(run).results["window_id"]) if (run / "parts").exists() else set()


def assert_same_run(run: Path, expected: Path) -> None:
    for table in ("results.parquet", "continuations.parquet"):
        # Windows that share a forward move each other's numbers by rounding, and by nothing else.
        assert_frame_equal(pl.read_parquet(run / table), pl.read_parquet(expected / table), rel_tol=1e-5, abs_tol=1e-12)


def test_a_scan_killed_three_times_ends_like_one_left_alone(
    lab: TinyLab, stage: Stage, undisturbed: tuple[Path, int], byrote: Command, tmp_path: Path
) -> None:
    """Moments are drawn with a seed from the first third of the run, so that three sessions cannot finish it."""
    expected, moments = undisturbed
    run = tmp_path / "run"
    drawn = random.Random(20261115)
    for number in range(KILLS):
        before, log = stored_windows(run), tmp_path / f"log-{number}"
        killed = stage(Session(arguments(lab, run), str(log), drawn.randrange(moments // 6, moments // 3)))
        assert killed.status == -signal.SIGKILL
        after = stored_windows(run)
        assert before <= after, "a kill must not take away what was finished"
        assert before.isdisjoint(finished(log)), "a finished window must not be measured again"
        assert len(finished(log)) == len(set(finished(log)))
        # Lost is at most the part in flight.
        assert len(set(finished(log)) - after) <= PART_WINDOWS
        assert not (run / "manifest.json").exists()
    assert stored_windows(run), "some kill must come after a part"
    assert byrote(*arguments(lab, run)).code == 0
    assert_same_run(run, expected)
    assert not (run / "parts").exists()
    assert not [path for path in run.rglob("*") if path.name.endswith("byrote-tmp")]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_any_moment_keeps_every_finished_window(
    lab: TinyLab, stage: Stage, undisturbed: tuple[Path, int], byrote: Command, tmp_path: Path, number: signal.Signals
) -> None:
    """One part would hold all windows, so everything that is found afterwards was written because of the signal.

    The first signal comes with the seventh window, the others somewhere near the beginning of what is left.
    """
    drawn, run = random.Random(int(number)), tmp_path / "run"
    command = arguments(lab, run, windows_per_part=1000)
    for session, (moment, counted) in enumerate(((7, "windows"), (drawn.randint(1, 25), "all"), (2, "windows"))):
        log, before = tmp_path / f"log-{session}", stored_windows(run)
        stopped = stage(Session(command, str(log), moment, int(number), counted))  # type: ignore[arg-type]
        assert stopped.status == 128 + number
        assert said(log).splitlines()[-1] == SENTENCE
        assert stored_windows(run) == before | set(finished(log))
        assert not (run / "manifest.json").exists()
    assert len(stored_windows(run)) >= 9
    assert byrote(*arguments(lab, run)).code == 0
    assert_same_run(run, undisturbed[0])


def is_heard(process: int, number: int) -> bool:
    """Whether the process has a handler for the signal, by the kernel's own word."""
    with suppress(FileNotFoundError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("after_seconds", [0.0, 0.3, 1.0, 2.0])
def test_a_signal_while_the_command_starts_is_one_sentence(
    lab: TinyLab, tmp_path: Path, number: signal.Signals, after_seconds: float
) -> None:
    """From the moment on that the process hears signals, in the middle of imports and of loading the model."""
    command = [sys.executable, "-m", "byrote", *arguments(lab, tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        # The alarm is the last one that byrote listens to. Before that, it is Python that starts, not byrote.
        while not is_heard(process.pid, signal.SIGALRM):
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(after_seconds)
        process.send_signal(number)
        out, err = process.communicate()
    if process.returncode == 0:
        pytest.skip("the scan was finished before the signal came")
    assert (process.returncode, out) == (128 + number, "")
    *phases, sentence = err.splitlines()
    assert sentence == SENTENCE
    assert all(phase.startswith(("loading", "cutting", "measuring")) for phase in phases), err


def test_a_signal_that_is_ignored_stays_ignored(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunSession, "add", hang_up_first(RunSession.add))
            outcome = byrote(*scan_arguments(lab, tmp_path / "run", limit=2, measures="verbatim"))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert outcome.code == 0


def hang_up_first(add: Callable[..., None]) -> Callable[..., None]:
    def added(*given: object) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        add(*given)

    return added


def test_a_complete_run_is_not_measured_again(
    lab: TinyLab, undisturbed: tuple[Path, int], byrote: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = undisturbed
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir() if path.name != ".lock"}
    monkeypatch.setattr(RunSession, "add", never)
    outcome = byrote(*arguments(lab, run))
    assert outcome.code == 0
    assert "was complete already; nothing was measured" in outcome.err
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir() if path.name != ".lock"} == before


def never(*_: object, **__: object) -> None:
    raise AssertionError("nothing is to be measured")


def test_other_slots_batches_and_parts_belong_to_the_same_run(
    lab: TinyLab, stage: Stage, undisturbed: tuple[Path, int], byrote: Command, tmp_path: Path
) -> None:
    """Begun with one grouping, stopped, and finished with another: the same run with the same rows."""
    run = tmp_path / "run"
    killed = stage(Session(arguments(lab, run), str(tmp_path / "log"), undisturbed[1] // 2))
    assert killed.status == -signal.SIGKILL
    assert stored_windows(run)
    other = scan_arguments(lab, run, limit=40, windows_per_part=100, slots=16, batch_windows=32)
    assert byrote(*other).code == 0
    assert_same_run(run, undisturbed[0])


def test_fresh_starts_over(lab: TinyLab, byrote: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = scan_arguments(lab, run, measures="verbatim", limit=4)
    assert byrote(*first).code == 0
    (run / "notes.md").write_text("mine", encoding="utf-8")
    other = scan_arguments(lab, run, measures="verbatim", limit=6, top_k=5)
    assert byrote(*other).code == 2
    assert pl.read_parquet(run / "results.parquet").height == 4
    assert byrote(*other, "--fresh").code == 0
    assert pl.read_parquet(run / "results.parquet").height == 6
    assert (run / "notes.md").read_text(encoding="utf-8") == "mine"
