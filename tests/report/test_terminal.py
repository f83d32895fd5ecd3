"""The terminal summary: the same numbers as the page, at any width, with names shown as they are."""

from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from byrote.report.analysis.rates import Criterion
from byrote.report.content import Cells
from byrote.report.terminal import BARS, COLOURS, bar_step, cells_table, show_content, sparkline, terminal_text
from byrote.report.view import RunView, load_view
from byrote.report.words import percent
from byrote.scan.report import scan_content
from byrote.types import Split
from tests.report.synthetic_run import Book, prose, write_run


def shown(view: RunView, width: int = 100) -> str:
    console = Console(width=width, file=StringIO(), color_system=None)
    with console.capture() as capture:
        for part in show_content(scan_content([view])):
            console.print(part)
    return capture.get()


def test_rates_are_those_of_the_run(view: RunView) -> None:
    text = shown(view)
    for criterion in (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR):
        entry = view.rate(criterion, Split.TARGET)
        assert entry is not None
        assert percent(entry.rate.value).replace(" ", "") in text
    held_out = next(document for document in view.documents if document.name == "held_out.txt")
    assert f"held_out.txt  control, 0 of {held_out.windows} windows extractable" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(view: RunView, width: int) -> None:
    assert max(len(line) for line in shown(view, width).splitlines()) <= width


def test_no_number_is_broken_across_lines(view: RunView) -> None:
    """`1,000` of the question stands in one piece at every width, and so does the count of windows;
    from 60 columns on so does `95%`, where tables have room."""
    count = len(view.population)
    assert count >= 1000
    for width in range(30, 101):
        words = shown(view, width).split()
        assert "1,000" in words
        assert words.count(f"{count:,}") == 2
        assert width < 60 or not [word for word in words if word.startswith("%")], width
    assert terminal_text("Min-K %++").plain == "Min-K %++"


def test_names_of_windows_are_not_broken() -> None:
    name, interval = "peter_pan_other_edition.txt@9000", "0.313 to 0.832"
    heads = ("window", "samples", "hits", "mass", "95 % interval", "certified")
    cells = Cells("masses", "Sampled", heads, ((name, "10", "6", "0.6", interval, interval),))
    console = Console(width=80, file=StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(cells_table(cells))
    words = capture.get().split()
    assert [words.count(word) for word in (name, "0.313", "0.832", "to")] == [1, 2, 2, 2]


def test_the_heading_of_a_strip_fits_a_line(tmp_path) -> None:
    name = "peter_pan_other_edition.txt"
    view = load_view(write_run(tmp_path / "run", [Book(name, prose(1, 1500))], stride=150))
    (line,) = (line for line in shown(view, 80).splitlines() if line.startswith(f"{name}  "))
    assert line.endswith("% measured")


def test_strips_show_bars_where_the_model_knows_the_text_and_dots_where_it_does_not(view: RunView) -> None:
    lines = shown(view).splitlines()
    lamp = next(index for index, line in enumerate(lines) if line.startswith("the_lamp.txt"))
    held_out = next(index for index, line in enumerate(lines) if line.startswith("held_out.txt"))
    assert set(lines[lamp + 2]) & set(BARS)
    assert not set(lines[held_out + 2]) & set(BARS)
    assert "·" in lines[held_out + 2]


def test_many_documents_are_grouped_by_copies_with_a_bar_per_window(tmp_path) -> None:
    short = [Book(f"note-{index}.txt", prose(index, 500), copies=4 * (index % 2)) for index in range(14)]
    view = load_view(write_run(tmp_path / "run", short, stride=100))
    lines = shown(view).splitlines()
    heading = next(index for index, line in enumerate(lines) if "7 documents, 4 copies in training" in line)
    windows = sum(document.windows for document in view.documents if document.copies == 4)
    assert len(lines[heading + 1].removeprefix("exact  ")) == windows
    assert any("7 documents, 0 copies in training" in line for line in lines[heading:])


def test_sparkline_by_hand() -> None:
    assert sparkline(np.array([np.nan, 0.0, 0.0009, 0.001, 0.04, 1.0]), 0.001).plain == "╱··▁▅█"
    assert sparkline(np.array([0.999, 1.0]), 1.0).plain == "·█"
    assert len(BARS) == len(COLOURS)


@given(st.floats(0, 1), st.floats(0, 1))
def test_bars_rise_with_probability(one: float, other: float) -> None:
    low, high = (bar_step(value, 0.001) for value in sorted((one, other)))
    assert low is None or (high is not None and low <= high)


def test_names_with_console_markup_are_shown_as_they_are(tmp_path) -> None:
    run = write_run(tmp_path / "run", [Book("[red]odd[/red].txt", prose(1, 1500))], model="[bold]m", stride=100)
    text = shown(load_view(run))
    assert "[red]odd[/red].txt" in text
    assert "[bold]m can be made" in text
