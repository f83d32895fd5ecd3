"""The consoles that commands print on: nothing that is printed acts on the terminal, and brackets are just brackets.

Standard output and standard error may be anything: a pipe whose reader has left, a full disk, closed, or of an encoding
without τ. Results go to standard output, so a command whose results cannot be printed fails. Standard error only
accompanies them: what cannot be written there is dropped.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from rich.console import Console
from rich.segment import Segment

from rote.errors import StorageError
from rote.printable import printable

NARROWEST, WIDEST = 20, 1000


class SafeConsole(Console):
    """Styles come from styled text alone; control characters inside of it are shown, not sent."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_ours = segment.control is not None
            yield segment if is_ours else segment._replace(text=printable(segment.text, keep="\n"))


def make_console(*, stderr: bool = False) -> Console:
    width = height = None
    if "COLUMNS" in os.environ or "LINES" in os.environ:
        # Rich would take 0, or a million, at its word.
        columns, lines = shutil.get_terminal_size()
        width, height = min(max(columns, NARROWEST), WIDEST), min(max(lines, 1), WIDEST)
    return SafeConsole(stderr=stderr, markup=False, highlight=False, emoji=False, width=width, height=height)


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
