"""Standard output and standard error may be a pipe whose reader has left, a full disk, closed, or in an encoding
without τ. Results go to standard output, so a command whose results cannot be printed fails. Standard error
only accompanies them: what cannot be written there is dropped.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from byrote.errors import ConfigError, StorageError
from byrote.progress import LOG, make_console, make_progress, make_status

__all__ = ["OutputError", "make_console", "make_progress", "make_status", "standard_streams", "verbosity"]


@contextmanager
def standard_streams() -> Iterator[None]:
    """Inside, what a stream cannot encode is escaped, no write to standard error fails, and one to standard output that
    fails is an OutputError."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        # Python has None for a stream that was closed from the start.
        output, errors = (nowhere if stream is None else stream for stream in before)
        for stream in (output, errors):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        sys.stdout = cast(TextIO, _Guarded(output, is_vital=True))
        sys.stderr = cast(TextIO, _Guarded(errors, is_vital=False))
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


@contextmanager
def verbosity(*, is_verbose: bool, is_quiet: bool) -> Iterator[None]:
    """Inside, the logger `byrote` writes to standard error what is being done, or nothing goes there but errors and
    warnings."""
    if is_verbose and is_quiet:
        raise ConfigError("verbose and quiet were both given; leave one of them out.")
    before, handler = LOG.level, _LogLines()
    if is_quiet:
        LOG.setLevel(logging.ERROR)
    if is_verbose:
        LOG.setLevel(logging.INFO)
        LOG.addHandler(handler)
    try:
        yield
    finally:
        LOG.setLevel(before)
        LOG.removeHandler(handler)


class _LogLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        make_console(stderr=True).print(self.format(record), soft_wrap=True)


class OutputError(StorageError):
    """Standard output cannot be written. `has_no_reader`: it is a pipe whose reader has left."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror}; send it elsewhere.")
        self.has_no_reader = isinstance(error, BrokenPipeError)


class _Guarded:
    """A text stream that ends at its first failure: what is written after that is dropped."""

    def __init__(self, stream: TextIO, *, is_vital: bool) -> None:
        self._stream, self._is_vital = stream, is_vital

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._failing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._failing():
            self._stream.flush()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Python would try the same again at its end, and exit with 120.
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
            if self._is_vital:
                raise OutputError(error) from error
