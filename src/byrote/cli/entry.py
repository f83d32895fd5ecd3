"""Where the `byrote` command starts, and how a signal ends it: finished rows are kept, one sentence is printed, and the
exit code is the one that shells expect.

Ctrl-C, SIGTERM and SIGHUP raise the exception `Stopped`, and run folders write their rows on the way out. Where an
exception would be lost or wrapped (a library that is being imported, a second signal, a clean-up that takes too long)
the rows are written from here and the process leaves at once. Signals are handled before anything that takes time is
imported, so only the standard library is imported here.
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

LEAST_ADDRESS_SPACE = 4 << 30
"""A scan of a tiny model reserves 3.3 GiB on two cores. With less, libraries abort or spin instead of raising."""


def main() -> None:
    _require_address_space()
    fill_standard_descriptors()
    with stopping_signals():
        from byrote.cli.main import main as run

        run()


def _require_address_space() -> None:
    """End with a sentence where `ulimit -v` is too tight for the libraries to be imported."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        print(
            f"error: this process may reserve {limit / 2**30:.1f} GiB of addresses (ulimit -v), and torch and polars "
            f"need {LEAST_ADDRESS_SPACE >> 30} GiB or more; raise the limit.",
            file=sys.stderr,
        )
        sys.exit(2)


def fill_standard_descriptors() -> None:
    """A closed standard stream leads nowhere from here on: the next file opened would have its number, and what a
    library prints would be written into that file."""
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENTENCE = "stopped; the same command resumes where this one ended."
SECONDS_TO_LEAVE = 10


class Stopped(BaseException):
    """A signal came. Not an Exception: what continues after errors must not continue after this."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def leave(number: int) -> NoReturn:
    """Print one sentence and exit with 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP; exit handlers run."""
    with suppress(OSError):
        print(SENTENCE, file=sys.stderr, flush=True)
    sys.exit(128 + number)


@dataclass(slots=True)
class StopSignal:
    """The first signal; None as long as there was none. The handler of signals."""

    number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            _leave_at_once(self.number)
        if _is_importing(frame):
            _leave_at_once(number)
        self.number = number
        # Should a library swallow the exception, the alarm ends the process all the same.
        signal.alarm(SECONDS_TO_LEAVE)
        raise Stopped(number)


@contextmanager
def stopping_signals() -> Iterator[StopSignal]:
    """Inside, a signal raises `Stopped`, which ends the process with a sentence when it arrives here.

    A signal that the parent process had us ignore (nohup) stays ignored.
    """
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield stop
    except Stopped as stopped:
        leave(stopped.number)
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _is_importing(frame: FrameType | None) -> bool:
    """Libraries catch, wrap and print what is raised while they are imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave_at_once(number: int) -> NoReturn:
    """Write finished rows, print the sentence, end without exit handlers."""
    store = sys.modules.get("byrote.store.resume")
    for session in tuple(getattr(store, "OPEN_SESSIONS", ())):
        with suppress(Exception):
            session.flush()
    with suppress(OSError):
        os.write(2, f"{SENTENCE}\n".encode())
    os._exit(128 + number)
