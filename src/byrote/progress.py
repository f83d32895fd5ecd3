"""What long work reports, and where it is shown: a bar in a terminal, lines in a log, or nothing.

Reports go to standard error, so that piped output stays clean. Nothing that is printed acts on the terminal, and
brackets are just brackets.
"""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, Thread
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Display
from rich.segment import Segment
from rich.text import Text

from byrote.printable import printable

LOG = logging.getLogger("byrote")
"""What is being done, at INFO. At ERROR, progress and notes are not shown either."""
NARROWEST, WIDEST = 20, 1000
LOG_SECONDS = 30.0


class Progress:
    """The reporter of long work; this one only logs."""

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        LOG.info("%s", words)
        began = time.monotonic()
        yield
        LOG.info("%s: done in %.1f s", words, time.monotonic() - began)

    def start(self, total: int, done: int) -> None:
        LOG.info("measuring %s, %s of them done before", f"{total:,}", f"{done:,}")

    def advance(self, windows: int) -> None: ...

    def remark(self, words: str) -> None:
        """A note beside the number of windows; replaces the one before."""

    def announce(self, sentence: str) -> None:
        """A sentence of its own."""


SilentProgress = Progress


class SpeedColumn(ProgressColumn):
    """Windows, or what is counted instead, per second."""

    def __init__(self, unit: str = "windows") -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f} {self._unit}/s" if speed else "", style="dim")


class CountColumn(MofNCompleteColumn):
    """Done and all, once it is known how many there are."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


class TerminalProgress(Progress):
    """A bar."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._task = display.add_task("starting", total=None)

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        self._display.update(self._task, description=words)
        with super().phase(words):
            yield

    def start(self, total: int, done: int) -> None:
        super().start(total, done)
        # Windows of an earlier session are on the bar but not in the speed.
        self._display.reset(self._task, description="measuring", total=total, completed=done)

    def advance(self, windows: int) -> None:
        self._display.advance(self._task, windows)

    def remark(self, words: str) -> None:
        self._display.update(self._task, description=f"measuring ({words})")

    def announce(self, sentence: str) -> None:
        """Above the bar, by the bar's own console: another one would write into the bar."""
        self._display.console.print(sentence)


class LoggedProgress(Progress):
    """What begins as a line of a log; the present state as another one (`logged` writes it from time to time)."""

    def __init__(self, unit: str = "windows", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._clock = unit, clock
        self._phase = "starting"
        self._total, self._done, self._resumed = 0, 0, 0
        self._remark = ""
        self._began = clock()

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        before, self._phase = self._phase, words
        self._tell(words)
        with super().phase(words):
            yield
        self._phase = before

    def set_phase(self, words: str) -> None:
        self._phase = words

    def start(self, total: int, done: int) -> None:
        super().start(total, done)
        self._phase = "measuring"
        self._tell(f"measuring {total:,} {self._unit}")
        self._total, self._done, self._resumed = total, done, done
        self._began = self._clock()

    def advance(self, windows: int) -> None:
        self._done += windows

    def remark(self, words: str) -> None:
        self._remark = f" ({words})"

    def announce(self, sentence: str) -> None:
        make_console(stderr=True).print(sentence, soft_wrap=True)

    def _tell(self, words: str) -> None:
        """What begins now, at once, unless the logger has just written it."""
        if not LOG.isEnabledFor(logging.INFO):
            self.announce(words)

    def line(self) -> str:
        """What is happening, how much is done, how fast, and how long the rest takes at this speed."""
        if self._phase != "measuring":
            return self._phase
        counts = f"measuring{self._remark}: {self._done:,} of {self._total:,} {self._unit}"
        seconds, measured = self._clock() - self._began, self._done - self._resumed
        if measured <= 0 or seconds <= 0:
            return counts
        speed = measured / seconds
        return f"{counts}, {speed:.3g} {self._unit}/s, about {duration((self._total - self._done) / speed)} left"


def duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def make_progress(unit: str = "windows") -> AbstractContextManager[Any]:
    """A bar in a terminal or a notebook, lines of a log otherwise; nothing where the logger shows errors only."""
    if _is_quiet():
        return nullcontext(SilentProgress())
    console = make_console(stderr=True)
    return _drawn(unit, console) if sys.stderr.isatty() or console.is_jupyter else logged(LoggedProgress(unit))


@contextmanager
def _drawn(unit: str, console: Console) -> Iterator[TerminalProgress]:
    words, counts = TextColumn("{task.description}"), CountColumn()
    with Display(words, BarColumn(), counts, SpeedColumn(unit), TimeRemainingColumn(), console=console) as display:
        yield TerminalProgress(display)


@contextmanager
def logged(progress: LoggedProgress, *, seconds: float = LOG_SECONDS) -> Iterator[LoggedProgress]:
    """Write the progress' line on standard error every so many seconds while the work goes on."""
    console, ended = make_console(stderr=True), Event()

    def write() -> None:
        while not ended.wait(seconds):
            console.print(progress.line(), soft_wrap=True)

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield progress
    finally:
        ended.set()
        writer.join()


@contextmanager
def make_status(words: str) -> Iterator[Callable[[str], None]]:
    """For work without a known end: a function that takes the newest words, for a spinner or for the log."""
    if _is_quiet():
        yield lambda newest: None
        return
    if sys.stderr.isatty():
        with make_console(stderr=True).status(Text(words)) as status:
            yield lambda newest: status.update(Text(newest))
        return
    progress = LoggedProgress()
    with logged(progress), progress.phase(words):
        yield progress.set_phase


class SafeConsole(Console):
    """Styles come from styled text alone; control characters inside of it are shown, not sent. Lines that are printed
    with `soft_wrap` are whole in a file; in a terminal they are broken between words, and long words are left whole."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **details: Any) -> None:
        if soft_wrap and self.is_terminal:
            super().print(*objects, overflow="ignore", crop=False, **details)
        else:
            super().print(*objects, soft_wrap=soft_wrap, **details)

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
    shown: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False, "width": width, "height": height}
    return SafeConsole(stderr=stderr, quiet=stderr and _is_quiet(), **shown)


def _is_quiet() -> bool:
    return LOG.level >= logging.ERROR
