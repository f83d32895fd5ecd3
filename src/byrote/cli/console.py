"""The consoles that commands print on: nothing that is printed acts on the terminal, and brackets are just brackets.

Standard output and standard error may be anything: a pipe whose reader has left, a full disk, closed, or of an encoding
without τ. Results go to standard output, so a command whose results cannot be printed fails. Standard error only
accompanies them: what cannot be written there is dropped.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Thread
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from byrote.errors import StorageError
from byrote.printable import printable

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


LOG_SECONDS = 30.0


class SpeedColumn(ProgressColumn):
    """Windows, or whatever is counted, per second."""

    def __init__(self, unit: str = "windows") -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f} {self._unit}/s" if speed else "", style="dim")


class TerminalProgress:
    """Draws on standard error, so that piped output stays clean."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._task = display.add_task("starting", total=None)

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        self._display.update(self._task, description=words)
        yield

    def start(self, total: int, done: int) -> None:
        # Windows of an earlier session are on the bar but not in the speed.
        self._display.reset(self._task, description="measuring", total=total, completed=done)

    def advance(self, windows: int) -> None:
        self._display.advance(self._task, windows)

    def remark(self, words: str) -> None:
        self._display.update(self._task, description=f"measuring ({words})")

    def announce(self, sentence: str) -> None:
        """Above the bar, by the bar's own console: another one would write into the bar."""
        self._display.console.print(sentence)


class LoggedProgress:
    """Knows what is happening and tells it as one line; somebody else decides when."""

    def __init__(self, unit: str = "windows", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._clock = unit, clock
        self._phase = "starting"
        self._total, self._done, self._resumed = 0, 0, 0
        self._remark = ""
        self._began = clock()

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        before, self._phase = self._phase, words
        yield
        self._phase = before

    def say(self, words: str) -> None:
        self._phase = words

    def start(self, total: int, done: int) -> None:
        self._phase = "measuring"
        self._total, self._done, self._resumed = total, done, done
        self._began = self._clock()

    def advance(self, windows: int) -> None:
        self._done += windows

    def remark(self, words: str) -> None:
        self._remark = f" ({words})"

    def announce(self, sentence: str) -> None:
        make_console(stderr=True).print(sentence, soft_wrap=True)

    def line(self) -> str:
        """What is happening, how much is done, how fast, and how long the rest takes at this speed."""
        if self._phase != "measuring":
            return self._phase
        counts = f"measuring{self._remark}: {self._done:,} of {self._total:,} {self._unit}"
        seconds, measured = self._clock() - self._began, self._done - self._resumed
        if measured <= 0 or seconds <= 0:
            return counts
        speed = measured / seconds
        return f"{counts}, {speed:.3g} {self._unit}/s, about {_duration((self._total - self._done) / speed)} left"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def make_progress(unit: str = "windows") -> AbstractContextManager[Any]:
    """A drawn bar in a terminal, lines of a log otherwise."""
    return _drawn(unit) if sys.stderr.isatty() else logged(LoggedProgress(unit))


@contextmanager
def _drawn(unit: str) -> Iterator[TerminalProgress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        SpeedColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=make_console(stderr=True), transient=False) as display:
        yield TerminalProgress(display)


@contextmanager
def logged(progress: LoggedProgress, *, seconds: float = LOG_SECONDS) -> Iterator[LoggedProgress]:
    """Write the progress' line on standard error every so many seconds while the work goes on."""
    console, ended = make_console(stderr=True), Event()

    def speak() -> None:
        while not ended.wait(seconds):
            console.print(progress.line(), soft_wrap=True)

    speaker = Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield progress
    finally:
        ended.set()
        speaker.join()


@contextmanager
def make_status(words: str) -> Iterator[Callable[[str], None]]:
    """For work without a known end: a function that takes the newest words, for a spinner or for the log."""
    if sys.stderr.isatty():
        with make_console(stderr=True).status(Text(words)) as status:
            yield lambda newest: status.update(Text(newest))
        return
    progress = LoggedProgress()
    progress.say(words)
    with logged(progress):
        yield progress.say
