"""The bar says what is happening and how fast; without a terminal a log line says the same every half minute."""

import io
import re
import sys
from threading import Event

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from byrote.progress import LoggedProgress, SpeedColumn, TerminalProgress, logged, make_progress, make_status


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


def test_a_sentence_said_meanwhile_stands_on_a_line_of_its_own() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with Progress(TextColumn("{task.description}"), console=console, auto_refresh=False) as display:
        progress = TerminalProgress(display)
        display.refresh()
        progress.announce("All prefixes are evaluated.")
    assert re.search(r"(^|\n|\x1b\[2K)All prefixes are evaluated\. *\n", screen.getvalue().replace("\r", ""))


def test_windows_of_an_earlier_session_are_on_the_bar() -> None:
    assert re.search(r"\b7/10\b", drawn(resumed=4))


def test_a_pipe_gets_a_log_and_a_terminal_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_progress() as progress:
        assert isinstance(progress, LoggedProgress)
    pretended = io.StringIO()
    monkeypatch.setattr(pretended, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", pretended)
    with make_progress() as progress:
        assert isinstance(progress, TerminalProgress)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_line_tells_phase_counts_rate_and_time_left() -> None:
    clock = Clock()
    progress = LoggedProgress("windows", clock=clock)
    assert progress.line() == "starting"
    with progress.phase("loading a model"):
        assert progress.line() == "loading a model"
    clock.now += 1000
    progress.start(5_000, 1_000)
    assert progress.line() == "measuring: 1,000 of 5,000 windows"
    clock.now += 40
    progress.advance(1_000)
    assert progress.line() == "measuring: 2,000 of 5,000 windows, 25 windows/s, about 2.0 min left"
    clock.now += 999_960
    assert progress.line().endswith("0.001 windows/s, about 34.7 days left")
    progress.remark("generic texts")
    assert progress.line().startswith("measuring (generic texts): 2,000 of 5,000 windows")
    with progress.phase("writing results"):
        assert progress.line() == "writing results"


def test_lines_are_written_while_the_work_goes_on_and_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = Event()

    class Listening(io.StringIO):
        def write(self, text: str) -> int:
            spoken.set()
            return super().write(text)

    screen = Listening()
    monkeypatch.setattr(sys, "stderr", screen)
    progress = LoggedProgress()
    progress.set_phase("[bold]working[/] on it")
    with logged(progress, seconds=0.001):
        assert spoken.wait(60)
    written = screen.getvalue()
    assert set(written.splitlines()) == {"[bold]working[/] on it"}
    assert screen.getvalue() == written


def test_an_error_ends_the_log_too() -> None:
    with pytest.raises(RuntimeError, match="stop"), logged(LoggedProgress(), seconds=60):
        raise RuntimeError("stop")


def test_work_without_an_end_says_its_newest_words(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[LoggedProgress] = []
    monkeypatch.setattr("byrote.progress.logged", lambda progress: heard.append(progress) or logged(progress))
    with make_status("asking") as say:
        assert heard[0].line() == "asking"
        say("7 answers")
        assert heard[0].line() == "7 answers"
