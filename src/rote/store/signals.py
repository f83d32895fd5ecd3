"""Signals that ask a process to stop, held back while something must not be torn apart."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""SIGALRM too: a command that was asked to stop ends by it when it takes too long."""


@contextmanager
def held_back() -> Iterator[None]:
    """Signals that come inside are delivered right after. Outside the main thread nothing has to be held back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: a handler that Python did not install and cannot put back.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for held in came:
            signal.raise_signal(held)
