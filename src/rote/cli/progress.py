"""Progress in a terminal: a bar with windows/s and time left. When output is piped: silence."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class SpeedColumn(ProgressColumn):
    """Windows per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f} windows/s" if speed else "", style="dim")


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


class QuietProgress:
    """Says nothing."""

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        yield

    def start(self, total: int, done: int) -> None: ...

    def advance(self, windows: int) -> None: ...


def make_progress() -> AbstractContextManager[Any]:
    """A drawn bar in a terminal, silence otherwise."""
    return _drawn() if sys.stderr.isatty() else _quiet()


@contextmanager
def _drawn() -> Iterator[TerminalProgress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        SpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as display:
        yield TerminalProgress(display)


@contextmanager
def _quiet() -> Iterator[QuietProgress]:
    yield QuietProgress()
