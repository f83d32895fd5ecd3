"""Content in a terminal: headline, facts, tables, sentences."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rote.report.content import Cells, Content
from rote.report.words import THIN_SPACE

ROWS_SHOWN = 40


def show_content(content: Content) -> Iterable[RenderableType]:
    yield _text(content.headline, style="bold")
    for notice in content.notices:
        yield _text(notice, style="yellow")
    if content.facts:
        grid = Table.grid(padding=(0, 2))
        for name, value in content.facts:
            grid.add_row(_text(name, style="dim"), _text(value))
        yield grid
    for cells in content.tables:
        yield Text()
        yield cells_table(cells)
    if content.sentences:
        yield Text()
    for sentence in content.sentences:
        row = Table.grid(padding=(0, 1))
        row.add_row(Text("·"), _text(sentence, style="dim"))
        yield row


def cells_table(cells: Cells) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title=_text(cells.title), title_justify="left")
    for place, head in enumerate(cells.heads):
        table.add_column(_text(head), justify="left" if place == 0 else "right", overflow="fold")
    for row in cells.rows[:ROWS_SHOWN]:
        table.add_row(*map(_text, row))
    left = len(cells.rows) - ROWS_SHOWN
    more = f"{left} more rows are in the report's tables/{cells.name}.csv." if left > 0 else ""
    if caption := " ".join(filter(None, (cells.note, more))):
        table.caption, table.caption_justify = _text(caption), "left"
    return table


def _text(words: str, style: str = "") -> Text:
    """The page's thin spaces are places where a terminal breaks the line."""
    return Text(words.replace(THIN_SPACE, ","), style=style)
