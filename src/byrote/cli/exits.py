"""Ctrl-C, SIGTERM and SIGHUP: what is finished is kept, one sentence, and the exit code that shells expect.

A signal becomes the exception `Stopped`, and run folders write their rows on the way out. Where an exception would be
lost or wrapped (a library that is being imported, a second signal, a clean-up that takes too long) the rows are
written from here and the process leaves at once. Only the standard library is imported: this must work before
anything else does.
"""

import errno
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from byrote.cli.console import OutputError
from byrote.errors import ByroteError
from byrote.printable import printable, redacted

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
    store = sys.modules.get("byrote.store.session")
    for session in tuple(getattr(store, "OPEN_SESSIONS", ())):
        with suppress(Exception):
            session.flush()
    with suppress(OSError):
        os.write(2, f"{SENTENCE}\n".encode())
    os._exit(exit_code(number))


UsageError: Any = typer.BadParameter.__base__
"""What typer raises for flags that do not exist or lack a value; it has no public name in every version."""
BAD_INPUT, OUR_MISTAKE = 2, 70
_LONGEST_QUOTE = 200
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "failed to map segment", "can't start new thread")
ABOUT_A_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})
"""What the system says of paths that a user gave, wherever they are first looked at."""
ABOUT_A_DEVICE = frozenset(
    {
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.ESTALE,
        errno.ENODEV,
        errno.ENXIO,
        errno.EMFILE,
        errno.ENFILE,
    }
)
"""What the system says when it cannot read, write or close a file, whoever opened it."""
READER_LEFT = 1


def end_with(error: Exception, console: Console) -> NoReturn:
    """Print one sentence for an error and exit with its code."""
    if isinstance(error, OutputError) and error.has_no_reader:
        sys.exit(READER_LEFT)
    if isinstance(error, ByroteError):
        refuse(console, str(error))
    if isinstance(error, UsageError):
        path = error.ctx.command_path if error.ctx is not None else "byrote"
        refuse(console, f"{error.format_message().rstrip('.')}; see {path} --help.")
    if _is_out_of_memory(error):
        refuse(
            console, "the memory is used up; give smaller numbers, such as --slots, --batch-windows or --beam-width."
        )
    if isinstance(error, OSError) and error.errno in ABOUT_A_NAME and error.filename is not None:
        name = str(error.filename)[:_LONGEST_QUOTE]
        refuse(console, f"{name} cannot be used: {str(error.strerror).lower()}; give another path.")
    if isinstance(error, OSError) and error.errno in ABOUT_A_DEVICE:
        name = "a file" if error.filename is None else str(error.filename)[:_LONGEST_QUOTE]
        refuse(
            console, f"{name} cannot be read or written: {str(error.strerror).lower()}; mend that, then run it again."
        )
    _report_mistake(console, error)


def refuse(console: Console, sentence: str, *, code: int = BAD_INPUT) -> NoReturn:
    console.print(
        Text("error: ", style="bold red").append(printable(redacted(sentence)), style="default not bold"),
        soft_wrap=True,
    )
    sys.exit(code)


def _is_out_of_memory(error: Exception) -> bool:
    """NumPy raises MemoryError; torch, the loader of libraries and the start of a thread are told by their words."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError | ImportError) and any(part in str(error).lower() for part in _OUT_OF_MEMORY)


def _report_mistake(console: Console, error: Exception) -> NoReturn:
    quoted = redacted(" ".join(f"{type(error).__name__}: {error}".split()))[:_LONGEST_QUOTE].rstrip(". ")
    refuse(console, f"unexpected {quoted}. This is a mistake in byrote; {_keep_traceback(error)}.", code=OUR_MISTAKE)


def _keep_traceback(error: Exception) -> str:
    """Where the traceback was written, readable by its owner alone: it may quote texts, though no key."""
    lines = redacted("".join(traceback.format_exception(error)))
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="byrote-", suffix="-traceback.txt", delete=False) as file:
            file.write(lines.encode("utf-8", "backslashreplace"))
    except OSError as storage:
        return f"its traceback could not be written ({storage.strerror})"
    return f"please report it with its traceback, {file.name}"
