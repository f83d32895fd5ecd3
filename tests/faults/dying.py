"""Runs of `byrote`, each in a process of its own that gets a signal at a given moment: SIGKILL, or one it may answer.

Moments are counted: every step of putting a file on the disk and, unless only those are asked for, every forward of
the model and every request of an audit, before and after; or the windows that are finished. A log gets a line for each
window or request that was finished; another file what the command said.

Sessions come as JSON lines on standard input (see `Session`). The answer is a JSON line with the exit status and the
number of moments. Every session is forked from this process, which has imported everything, loaded the model and
started nothing else: that would take longer than a session.
"""

import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

FILE_CALLS = ("fsync", "replace", "unlink", "mkdir", "rmdir", "write", "pwrite", "ftruncate")


Counted = Literal["all", "files", "windows"]


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command. `moment` 0 means never; an audit is one of the book and folder in `arguments`."""

    arguments: list[str]
    log: str
    moment: int = 0
    signal: int = int(signal.SIGKILL)
    counted: Counted = "all"


class Ended(NamedTuple):
    """How a session ended, and how many moments it had if it came to its end."""

    status: int
    moments: int


class Stage(Protocol):
    def __call__(self, session: Session) -> Ended: ...


class Clock:
    """Counts moments and sends this process a signal at the chosen one."""

    def __init__(self, moment: int, number: int) -> None:
        self.moment, self.number, self.now = moment, number, 0

    def tick(self) -> None:
        self.now += 1
        if self.now == self.moment:
            os.kill(os.getpid(), self.number)

    def watch(self, owner: Any, name: str) -> None:
        """A moment before and one after every call."""
        original: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self.tick()
            result = original(*arguments, **options)
            self.tick()
            return result

        setattr(owner, name, watched)


class Log:
    """Lines that are in the file when the call returns, whatever happens to the process then."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.write = os.write  # the real one, before it counts moments

    def note(self, line: str) -> None:
        self.write(self.descriptor, f"{line}\n".encode())


def watch(session: Session) -> Clock:
    from byrote.models.hf.model import HuggingFaceModel
    from byrote.models.hf.tree import TreeSessionHF
    from byrote.store.journal import AnswerFile
    from byrote.store.resume import RunSession

    log, add, keep = Log(session.log), RunSession.add, AnswerFile.keep

    def noted(run: RunSession, row: Any, continuations: Any = ()) -> None:
        add(run, row, continuations)
        # The cells of a study have the same windows.
        log.note(f"{run.path.name}/{row['window_id']}" if run.path.parent.name == "cells" else row["window_id"])
        if session.counted == "windows":
            clock.tick()

    def noted_answers(book: AnswerFile, answers: Any) -> None:
        keep(book, answers)
        for key in answers:
            log.note(key)

    RunSession.add = noted  # type: ignore[method-assign]
    AnswerFile.keep = noted_answers  # type: ignore[method-assign]
    clock = Clock(session.moment, session.signal)
    if session.counted != "windows":
        for name in FILE_CALLS:
            clock.watch(os, name)
    if session.counted == "all":
        clock.watch(TreeSessionHF, "forward")
        clock.watch(HuggingFaceModel, "score")
    return clock


def run_command(session: Session) -> int:
    """The command, as `python -m byrote` runs it. Returns the number of moments it had, if it lives that long."""
    clock = watch(session)
    sys.argv = ["byrote", *session.arguments]
    try:
        runpy.run_module("byrote", run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (0, None):
            raise
    return clock.now


def run_audit(session: Session) -> int:
    """An audit of a book that the responder knows by heart; every request sent is logged before it is answered."""
    from byrote.longform.run import run_audit
    from byrote.models.responder import Reply, Request
    from tests.longform.audits import InProcess, make_run
    from tests.loopback.brains import KnowsByHeart

    _, book, out = session.arguments
    log = Log(session.log)

    class Logged(InProcess):
        def complete(self, request: Request, *, idempotency_key: str) -> Reply:
            log.note(idempotency_key.partition("/")[2])
            return super().complete(request, idempotency_key=idempotency_key)

    clock = watch(replace(session, log=os.devnull))
    if session.counted == "all":
        clock.watch(Logged, "complete")
    run_audit(make_run(book, Path(out)), Logged(KnowsByHeart(book)))
    return clock.now


def fork(session: Session) -> Ended:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            said = os.open(f"{session.log}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            answer = os.write
            moments = (run_audit if session.arguments[0] == "in-process-audit" else run_command)(session)
            answer(writing, json.dumps([moments, sorted(sys.modules)]).encode())
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answered:
        moments, modules = json.loads(answered.read() or "[0, []]")
    _, status = os.waitpid(child, 0)
    import_all(modules)
    return Ended(os.waitstatus_to_exitcode(status), moments)


def import_all(modules: list[str]) -> None:
    """What one session imported, the next ones find imported."""
    for name in modules:
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)


def share_model(path: str) -> None:
    """Load the model once; every session that asks for it gets this one."""
    import torch

    from byrote.models.hf.model import load

    torch.set_num_threads(1)
    model = load(path, device="cpu")
    import_module("byrote.cli.main")
    for name in ("byrote.scan.run", "byrote.prior.run", "byrote.models.load"):
        vars(import_module(name))["open_model"] = lambda *_, **__: model
    # Small blocks make many of them.
    vars(import_module("byrote.prior.run"))["BLOCK_PREFIXES"] = 6


def main() -> None:
    share_model(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(fork(Session(**json.loads(line)))._asdict()), flush=True)


class DyingProcess:
    """The process that forks the sessions, from the side that asks for them."""

    def __init__(self, model: Path) -> None:
        import subprocess

        further = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        environment = os.environ | further
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.dying", str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )

    def __call__(self, session: Session) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(session)) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def finished(log: Path) -> list[str]:
    """The windows or requests that a session's log names."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def said(log: Path) -> str:
    return log.with_name(f"{log.name}.said").read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
