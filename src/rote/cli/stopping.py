"""Ctrl-C, SIGTERM and SIGHUP: what is finished is kept, one sentence, and the exit code that shells expect.

A signal becomes the exception `Stopped`, and run folders write their rows on the way out. Where an exception would be
lost or wrapped (a library that is being imported, a second signal, a clean-up that takes too long) the rows are
written from here and the process leaves at once. Only the standard library is imported: this must work before
anything else does.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENTENCE = "stopped; the same command resumes where this one ended."
SECONDS_TO_LEAVE = 10


class Stopped(BaseException):
    """The process was asked to stop. Not an Exception: nothing that goes on after errors may go on after this."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(number: int) -> int:
    """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + number


def leave(number: int) -> NoReturn:
    """Say so and end, by the way that runs what is to be run at the end."""
    with suppress(OSError):
        print(SENTENCE, file=sys.stderr, flush=True)
    sys.exit(exit_code(number))


@dataclass(slots=True)
class Asked:
    """The signal that came first; None as long as none came."""

    number: int | None = None


@contextmanager
def stopping_signals() -> Iterator[Asked]:
    """Inside, a signal raises `Stopped`, which ends the process with a sentence when it arrives here.

    A signal that the parent process had us ignore (nohup) stays ignored.
    """
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    handle = _Handler(asked)
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield asked
    except Stopped as stopped:
        leave(stopped.number)
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _Handler:
    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked.number is not None:
            _leave_at_once(self.asked.number)
        if _is_importing(frame):
            _leave_at_once(number)
        self.asked.number = number
        # Should somebody swallow the exception, the alarm ends the process all the same.
        signal.alarm(SECONDS_TO_LEAVE)
        raise Stopped(number)


def _is_importing(frame: FrameType | None) -> bool:
    """Libraries catch, wrap and print what is raised while they are imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave_at_once(number: int) -> NoReturn:
    """Write what is finished, say so, end."""
    store = sys.modules.get("rote.store.session")
    for session in tuple(getattr(store, "OPEN_SESSIONS", ())):
        with suppress(Exception):
            session.flush()
    with suppress(OSError):
        os.write(2, f"{SENTENCE}\n".encode())
    os._exit(exit_code(number))
