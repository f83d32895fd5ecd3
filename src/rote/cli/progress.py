"""Progress on standard error: a bar in a terminal; without one a line of the log every half minute."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from rote.cli.console import make_console

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
        self._display.update(self._task, description="measuring", total=total)
        if done:
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
