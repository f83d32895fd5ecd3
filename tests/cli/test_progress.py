"""The bar says what is happening and how fast; without a terminal nothing is drawn."""

import io
import re
import sys

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from rote.cli.progress import QuietProgress, SpeedColumn, TerminalProgress, make_progress


def drawn(resumed: int) -> str:
    """What a terminal shows after a phase and a few windows, `resumed` of ten done by an earlier session."""
    screen = io.StringIO()
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), SpeedColumn())
    with Progress(*columns, console=Console(file=screen, force_terminal=True, width=100)) as display:
        progress = TerminalProgress(display)
        with progress.phase("loading a model"):
            display.refresh()
        progress.start(10, resumed)
        for _ in range(3):
            progress.advance(1)
    return screen.getvalue()


def test_the_bar_shows_the_phase_the_count_and_the_speed() -> None:
    shown = drawn(resumed=0)
    assert "loading a model" in shown
    assert "measuring" in shown
    assert re.search(r"\b3/10\b", shown)
    assert "windows/s" in shown


def test_windows_of_an_earlier_session_are_on_the_bar() -> None:
    assert re.search(r"\b7/10\b", drawn(resumed=4))


def test_a_pipe_gets_silence_and_a_terminal_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_progress() as progress:
        assert isinstance(progress, QuietProgress)
    pretended = io.StringIO()
    monkeypatch.setattr(pretended, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", pretended)
    with make_progress() as progress:
        assert isinstance(progress, TerminalProgress)
