"""Runs of the `rote` command, each in a process of its own that kills itself with SIGKILL at a given moment.

Moments are counted: every forward of the model, and every step of putting a file on the disk. A log gets a line for
each window that the measures took up and each that they finished.

Sessions come as JSON lines on standard input: moment (0 for never), log, arguments. The answer is a JSON line with
the exit status and the number of moments. Every session is forked from this process, which has imported everything
and started nothing: importing would take longer than scanning.
"""

import json
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


class Clock:
    """Counts moments and dies at the chosen one; 0 means never."""

    def __init__(self, moment: int) -> None:
        self.moment, self.now = moment, 0

    def tick(self) -> None:
        self.now += 1
        if self.now == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: Any, name: str) -> None:
        """A moment before and one after every call."""
        original: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self.tick()
            result = original(*arguments, **options)
            self.tick()
            return result

        setattr(owner, name, watched)


def keep_log(path: Path) -> None:
    """Write down which windows are taken up and which are finished, at once."""
    from rote.scan import run as execute

    measure: Callable[..., Any] = execute.measure_windows

    def logged(model: Any, windows: Iterable[Any], config: Any, *, decode: Any, emit: Callable[[Any], None]) -> Any:
        def taken_up() -> Iterator[Any]:
            for window in windows:
                note("taken", window.window_id)
                yield window

        def finished(measured: Any) -> None:
            note("finished", measured.row["window_id"])
            emit(measured)

        return measure(model, taken_up(), config, decode=decode, emit=finished)

    def note(what: str, window_id: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{what} {window_id}\n")

    execute.measure_windows = logged


def run_session(moment: int, log: Path, arguments: list[str]) -> int:
    """The command, as `python -m rote` runs it. Returns the number of moments it had, if it lives that long."""
    from rote.models.hf import HuggingFaceModel
    from rote.models.hf_tree import TreeSessionHF

    clock = Clock(moment)
    clock.watch(TreeSessionHF, "forward")
    clock.watch(HuggingFaceModel, "score")
    clock.watch(os, "fsync")
    clock.watch(os, "replace")
    keep_log(log)
    sys.argv = ["rote", *arguments]
    try:
        runpy.run_module("rote", run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (0, None):
            raise
    return clock.now


def fork_session(session: dict[str, Any]) -> dict[str, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            moments = run_session(session["moment"], Path(session["log"]), session["arguments"])
            os.write(writing, str(moments).encode())
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        moments_text = answer.read()
    _, status = os.waitpid(child, 0)
    return {"status": os.waitstatus_to_exitcode(status), "moments": int(moments_text or 0)}


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM  # noqa: F401

    import rote.cli.main
    import rote.scan.run  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(fork_session(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
