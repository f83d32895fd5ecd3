"""Content in a terminal: headline, facts, tables, the text of a scan as strips of bars, sentences."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from byrote.report.content import Cells, Content
from byrote.report.view import RunView, ViewedDocument
from byrote.report.words import THIN_SPACE, integer, percent, plural, probability
from byrote.stats.population import Floats, Population, character_maxima, stretch_maxima
from byrote.types import Split

ROWS_SHOWN = 40
SPACED_PERCENT = re.compile(r"(?<=\d) %")
LONGEST_NAME = 32
"""Characters of a name that a table at 80 columns has room for."""


def print_content(content: Content, console: Console) -> None:
    for part in show_content(content):
        console.print(part)


def show_content(content: Content) -> Iterable[RenderableType]:
    yield terminal_text(content.headline, style="bold")
    if content.question:
        yield terminal_text(content.question, style="dim")
    for notice in content.notices:
        yield terminal_text(notice, style="yellow")
    if content.facts:
        grid = Table.grid(padding=(0, 2))
        for name, value in content.facts:
            grid.add_row(terminal_text(name, style="dim"), terminal_text(value))
        yield grid
    for cells in content.tables:
        yield Text()
        yield cells_table(cells)
    if strips := list(content.strips()):
        yield from (Text(), *strips)
    if content.sentences:
        yield Text()
    for sentence in content.sentences:
        row = Table.grid(padding=(0, 1))
        row.add_row(Text("·"), terminal_text(sentence, style="dim"))
        yield row


def cells_table(cells: Cells) -> Table:
    title = terminal_text(cells.title)
    table = Table(box=None, pad_edge=False, header_style="dim", title=title, title_justify="left")
    # Names have no blank to break at.
    is_short = all(len(row[0]) <= LONGEST_NAME for row in cells.rows)
    for place, head in enumerate(cells.heads):
        is_first = place == 0
        justify: Literal["left", "right"] = "left" if is_first else "right"
        table.add_column(terminal_text(head), justify=justify, overflow="fold", no_wrap=is_first and is_short)
    for row in cells.rows[:ROWS_SHOWN]:
        table.add_row(*map(terminal_text, row))
    left = len(cells.rows) - ROWS_SHOWN
    more = f"{left} more rows are in the report's tables/{cells.name}.csv." if left > 0 else ""
    if caption := " ".join(filter(None, (cells.note, more))):
        table.caption, table.caption_justify = terminal_text(caption), "left"
    return table


def terminal_text(words: str, style: str = "") -> Text:
    """Never markup, with commas and `46.6%`: a terminal breaks lines at the page's spaces inside of numbers."""
    return Text(SPACED_PERCENT.sub("%", words.replace(THIN_SPACE, ",")), style=style)


BARS = "▁▂▃▄▅▆▇█"
COLOURS = ("#ffe6a8", "#ffd37c", "#fdb95a", "#f89b44", "#ef7a35", "#dc5a2a", "#c8451f", "#b93a1d")
NOTHING = "·"
UNMEASURED = "╱"
DOCUMENTS_SHOWN = 12
LABEL_WIDTH = 7


def document_strips(view: RunView) -> Iterable[RenderableType]:
    """Few documents: each with its strips, strongest first. Many: a strip per group, a bar per window."""
    if len(view.documents) > DOCUMENTS_SHOWN:
        yield from _group_strips(view)
        return
    parts = [(document, view.population.select(view.rows_of(document))) for document in view.documents]
    parts.sort(key=lambda pair: (pair[0].split == Split.CONTROL, -float(pair[1].is_certified(view.threshold).mean())))
    for document, part in parts:
        length = document.characters or int(part.char_end.max())
        heats = [
            character_maxima(part.suffix_char_start, part.char_end, masses, length=length) for masses in _masses(part)
        ]
        measured = f"{percent(float(np.mean(~np.isnan(heats[0]))))} measured"
        yield _strip_heading(view, document.name, part, f"{document.split}, ", f"; {measured}")
        yield from _strips(view, heats)
    yield _legend(view.threshold, f"{UNMEASURED}: not measured")


def _group_strips(view: RunView) -> Iterable[RenderableType]:
    """Documents of the same side, wording and number of copies together, one bar per window in reading order."""
    groups: dict[tuple[bool, bool, int | None], list[ViewedDocument]] = {}
    for document in view.documents:
        is_control = document.split == Split.CONTROL
        groups.setdefault((is_control, document.is_other_edition, document.copies), []).append(document)
    for (is_control, is_other_edition, copies), documents in groups.items():
        part = view.population.select(np.logical_or.reduce([view.rows_of(document) for document in documents]))
        words = ["control" if is_control else "target", plural(len(documents), "document")]
        if copies is not None and not is_control:
            edition = " of another wording" if is_other_edition else ""
            words.append(f"{integer(copies)} {'copy' if copies == 1 else 'copies'}{edition} in training")
        yield _strip_heading(view, ", ".join(words), part)
        yield from _strips(view, _masses(part))
    yield _legend(view.threshold, "a sign a window, or the strongest of several")


def _masses(part: Population) -> list[Floats]:
    return [part.verbatim(), *([] if part.mass_lower is None else [part.mass(part.edit_budget)])]


def _strips(view: RunView, heats: Iterable[Floats]) -> Iterable[RenderableType]:
    labels = ("exact", f"ε ≤ {view.population.edit_budget}")
    return (Strip(label, heat, view.threshold) for label, heat in zip(labels, heats, strict=False))


def _strip_heading(view: RunView, name: str, part: Population, before: str = "", after: str = "") -> Text:
    """With a count and no share: documents have few windows, and a share of few needs its interval."""
    heading = terminal_text(name, style="bold")
    heading.overflow, heading.no_wrap = "ellipsis", True
    hits = int(part.is_certified(view.threshold).sum())
    words = terminal_text(f"  {before}{integer(hits)} of {plural(len(part), 'window')} extractable{after}")
    return heading.append(words.plain, style="dim not bold")


def _legend(threshold: float, last: str) -> Text:
    bars = f"{BARS[0]} to {BARS[-1]}: probability from {probability(threshold)} to 1"
    return Text(f"{bars}; {NOTHING}: below {probability(threshold)}; {last}", style="dim")


@dataclass(frozen=True)
class Strip:
    """A text as one line of bars as wide as the terminal: height and colour are the probability on a log scale from τ
    to 1, `·` is below τ, `╱` stands in no target that was measured."""

    label: str
    heat: Floats
    threshold: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(f"{self.label:<{LABEL_WIDTH}}", style="dim", no_wrap=True)
        columns = max(1, options.max_width - LABEL_WIDTH)
        yield line.append_text(sparkline(stretch_maxima(self.heat, columns), self.threshold))


def sparkline(values: Floats, threshold: float) -> Text:
    """One character per value."""
    line = Text(style="not dim")
    for value in values:
        step = bar_step(float(value), threshold)
        if step is None:
            line.append(UNMEASURED if np.isnan(value) else NOTHING, style="dim")
        else:
            line.append(BARS[step], style=COLOURS[step])
    return line


def bar_step(value: float, threshold: float) -> int | None:
    """0 just at τ to 7 at certainty, even steps on a log scale; None below τ or where there is no value."""
    if not value >= threshold:
        return None
    if threshold >= 1:
        return len(BARS) - 1
    depth = 1 - np.log(value) / np.log(threshold)
    return min(len(BARS) - 1, int(depth * len(BARS)))
