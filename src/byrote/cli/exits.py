"""Errors of a command: one sentence and an exit code; a traceback only where the mistake is ours."""

import errno
import sys
import tempfile
import traceback
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from byrote.cli.console import OutputError
from byrote.errors import ByroteError
from byrote.printable import printable, redacted

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for flags that do not exist or lack a value; it has no public name in every version."""
BAD_INPUT, OUR_MISTAKE = 2, 70
_LONGEST_QUOTE = 200
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "failed to map segment", "can't start new thread")
ABOUT_A_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors of paths that a user gave, wherever they are first used."""
ABOUT_A_DEVICE = frozenset({
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EMFILE,
    errno.ENFILE,
})  # fmt: skip
"""Errors of reading, writing and closing any file."""
READER_LEFT = 1


def end_with(error: Exception, console: Console) -> NoReturn:
    """Print one sentence for an error and exit with its code."""
    if isinstance(error, OutputError) and error.has_no_reader:
        sys.exit(READER_LEFT)
    if isinstance(error, ByroteError):
        refuse(console, str(error))
    if isinstance(error, UsageError):
        path = error.ctx.command_path if error.ctx is not None else "byrote"
        further = [] if error.ctx is None else getattr(error.ctx.command.callback, "further", [])
        name = str(getattr(error, "option_name", "")).removeprefix("--").replace("-", "_")
        advice = f"write --set {name}=VALUE, or " if name in [option.name for option in further] else ""
        refuse(console, f"{error.format_message().rstrip('.')}; {advice}see {path} --help.")
    if _is_out_of_memory(error):
        refuse(console, "the memory is used up; give smaller numbers, such as --batch-windows, slots or --beam-width.")
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
    """NumPy raises MemoryError; torch, the loader of libraries and threads are recognised by their words."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError | ImportError) and any(part in str(error).lower() for part in _OUT_OF_MEMORY)


def _report_mistake(console: Console, error: Exception) -> NoReturn:
    """The traceback goes to a file that only its owner can read: it may quote texts, though no key."""
    quoted = redacted(" ".join(f"{type(error).__name__}: {error}".split()))[:_LONGEST_QUOTE].rstrip(". ")
    lines = redacted("".join(traceback.format_exception(error)))
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="byrote-", suffix="-traceback.txt", delete=False) as file:
            file.write(lines.encode("utf-8", "backslashreplace"))
        advice = f"please report it with its traceback, {file.name}"
    except OSError as storage:
        advice = f"its traceback could not be written ({storage.strerror})"
    refuse(console, f"unexpected {quoted}. This is a mistake in byrote; {advice}.", code=OUR_MISTAKE)
