"""Content in a terminal: headline, facts, tables, sentences."""

from collections.abc import Iterable

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from byrote.report.content import Cells, Content
from byrote.report.groups import GROUP_CRITERIA, group_rates
from byrote.report.limits import bracket_of
from byrote.report.membership import separation_cells
from byrote.report.posthoc import posthoc_cells
from byrote.report.rates import Criterion, CriterionRate, rate_for, rates_by_criterion
from byrote.report.summary import Sentence, certainty, headline, question
from byrote.report.sweeps import sweep_cells
from byrote.report.view import Document, RunView, selection_words
from byrote.report.words import THIN_SPACE, integer, interval_words, percent, plural, policy_words, probability
from byrote.stats.limits import Bracket
from byrote.stats.population import Floats, Population, character_maxima, stretch_maxima
from byrote.types import Split

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


BARS = "▁▂▃▄▅▆▇█"
COLOURS = ("#ffe6a8", "#ffd37c", "#fdb95a", "#f89b44", "#ef7a35", "#dc5a2a", "#c8451f", "#b93a1d")
NOTHING = "·"
UNMEASURED = "╱"
DOCUMENTS_SHOWN = 12
GROUPS_SHOWN = 20


def show_run(view: RunView) -> RenderableType:
    """Headline, rates of both splits, heat strips of the strongest documents, and how sure it all is."""
    rates = rates_by_criterion(view.population, view.threshold)
    opening = Text(with_commas(headline(view, rates)), style="bold")
    parts: list[RenderableType] = [opening, Text(with_commas(question(view)), style="dim"), Text()]
    if not view.is_complete:
        parts.insert(0, Text("This run is not finished; what follows are its finished windows.", style="yellow"))
    parts += [rate_table(view, rates), Text(), *group_tables(view)]
    for cells in (*sweep_cells(view), *posthoc_cells(view), *separation_cells([view])):
        parts += [cells_table(cells), Text()]
    parts += document_strips(view)
    parts += [Text(), *bullet_list(certainty(view, rates))]
    return Group(*parts)


def with_commas(sentences: str) -> str:
    """Thousands parted by commas: the page's thin space is a place where a terminal breaks the line."""
    return sentences.replace(THIN_SPACE, ",")


def rate_table(view: RunView, rates: list[CriterionRate]) -> Table:
    """One row per criterion, target beside control."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for split in Split:
        table.add_column(split.value, justify="right")
        table.add_column("95 % interval")
    budget = view.population.edit_budget
    rows = [
        ("greedy, exact", Criterion.GREEDY, 0),
        (f"verbatim, p ≥ {probability(view.threshold)}", Criterion.VERBATIM, None),
        (f"near-verbatim, ε ≤ {budget}, certified", Criterion.NEAR, budget),
    ]
    for name, criterion, edits in rows:
        cells = [rate_cells(rate_for(rates, criterion, split=split, edits=edits)) for split in Split]
        if any(cells):
            table.add_row(Text(name), *[cell for pair in cells for cell in (pair or (Text("–"), Text("–")))])
    limits = [bracket_of(view, split=split) for split in Split]
    if any(limits):
        table.add_row(Text("  at most"), *[cell for limit in limits for cell in limit_cells(limit)])
    table.caption = with_commas(f"{selection_words(view)} · {policy_words(view.config)}")
    table.caption_justify = "left"
    return table


def group_tables(view: RunView) -> Iterable[RenderableType]:
    """Rates by kind and by tag, where records have them."""
    entries = group_rates(view)
    for grouping in dict.fromkeys(entry.grouping for entry in entries):
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in (grouping, "side", "windows", *(criterion.value for criterion in GROUP_CRITERIA)):
            table.add_column(heading, justify="left" if heading in (grouping, "side") else "right")
        own = [entry for entry in entries if entry.grouping == grouping]
        rows = list(dict.fromkeys((entry.group, entry.split) for entry in own))
        for group, split in rows[:GROUPS_SHOWN]:
            rates = {entry.criterion: entry.rate for entry in own if (entry.group, entry.split) == (group, split)}
            cells = [
                f"{percent(rates[criterion].value)} ({interval_words(rates[criterion].interval)})"
                if criterion in rates
                else "–"
                for criterion in GROUP_CRITERIA
            ]
            windows = integer(next(iter(rates.values())).n)
            table.add_row(*(Text(with_commas(cell)) for cell in (group, split.value, windows, *cells)))
        if len(rows) > GROUPS_SHOWN:
            table.caption = f"{len(rows) - GROUPS_SHOWN} more rows are in the report's tables/groups.csv."
        yield table
        yield Text()


def rate_cells(entry: CriterionRate | None) -> tuple[Text, Text] | None:
    if entry is None:
        return None
    share = Text(percent(entry.rate.value), style="bold")
    return share, Text(interval_words(entry.rate.interval), style="dim")


def limit_cells(limit: Bracket | None) -> tuple[Text, Text]:
    if limit is None:
        return Text("–"), Text("–")
    manner = f"at {100 * limit.level:g} % confidence" if limit.is_sampled else "certified"
    return Text(percent(limit.high), style="bold"), Text(manner, style="dim")


def document_strips(view: RunView) -> Iterable[RenderableType]:
    """Few documents: each with its strips, strongest first. Many: a strip per group, a bar per window."""
    if len(view.documents) > DOCUMENTS_SHOWN:
        yield from group_strips(view)
        return
    for document in sorted(view.documents, key=lambda one: (one.split == Split.CONTROL, -strength(view, one))):
        part = view.population.select(view.rows_of(document))
        length = document.characters or int(part.char_end.max())
        spans = part.suffix_char_start, part.char_end
        exact = character_maxima(*spans, part.verbatim(), length=length)
        measured = f"{percent(float(np.mean(~np.isnan(exact))))} of its text measured"
        yield strip_heading(document.name, f"{document.split}, {extractable_words(view, part)}; {measured}")
        yield Strip("exact", exact, view.threshold)
        if part.mass_lower is not None:
            near = character_maxima(*spans, part.mass(part.edit_budget), length=length)
            yield Strip(f"ε ≤ {part.edit_budget}", near, view.threshold)
    yield legend(view.threshold, f"{UNMEASURED}: not measured")


def group_strips(view: RunView) -> Iterable[RenderableType]:
    """Documents of the same side, wording and number of copies together, one bar per window in reading order."""
    groups: dict[tuple[bool, bool, int], list[Document]] = {}
    for document in view.documents:
        copies = -1 if document.copies is None else document.copies
        groups.setdefault((document.split == Split.CONTROL, document.is_other_edition, copies), []).append(document)
    for (is_control, is_other_edition, copies), documents in groups.items():
        rows = np.logical_or.reduce([view.rows_of(document) for document in documents])
        part = view.population.select(rows)
        near = part.mass(part.edit_budget)
        words = ["control" if is_control else "target", plural(len(documents), "document")]
        if copies >= 0 and not is_control:
            edition = " of another wording" if is_other_edition else ""
            words.append(f"{integer(copies)} {'copy' if copies == 1 else 'copies'}{edition} in training")
        yield strip_heading(with_commas(", ".join(words)), extractable_words(view, part))
        yield Strip("exact", part.verbatim(), view.threshold)
        if part.mass_lower is not None:
            yield Strip(f"ε ≤ {part.edit_budget}", near, view.threshold)
    yield legend(view.threshold, "a sign a window, or the strongest of several")


def extractable_words(view: RunView, part: Population) -> str:
    """A count and no share: documents have few windows, and a share of few wants its interval."""
    hits = int((part.mass(part.edit_budget) >= view.threshold).sum())
    return with_commas(f"{integer(hits)} of {plural(len(part), 'window')} extractable")


def legend(threshold: float, last: str) -> Text:
    """What the signs of a strip mean."""
    bars = f"{BARS[0]} to {BARS[-1]}: probability from {probability(threshold)} to 1"
    return Text(f"{bars}; {NOTHING}: below {probability(threshold)}; {last}", style="dim")


def strip_heading(name: str, note: str) -> Text:
    heading = Text(name, style="bold", overflow="ellipsis", no_wrap=True)
    return heading.append(f"  {note}", style="dim not bold")


def strength(view: RunView, document: Document) -> float:
    part = view.population.select(view.rows_of(document))
    return float(np.mean(part.mass(part.edit_budget) >= view.threshold))


class Strip:
    """A text as one line of bars as wide as the terminal: height and colour are the probability on a log scale from τ
    to 1, `·` is below τ, `╱` stands in no target that was measured."""

    LABEL_WIDTH = 7

    def __init__(self, label: str, heat: Floats, threshold: float) -> None:
        self.label = label
        self.heat = heat
        self.threshold = threshold

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = max(1, options.max_width - self.LABEL_WIDTH)
        line = Text(f"{self.label:<{self.LABEL_WIDTH}}", style="dim", no_wrap=True)
        yield line.append_text(sparkline(stretch_maxima(self.heat, columns), self.threshold))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.LABEL_WIDTH + 1, options.max_width)


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


def bullet_list(sentences: Iterable[Sentence]) -> Iterable[RenderableType]:
    """Sentences with a hanging bullet."""
    for sentence in sentences:
        row = Table.grid(padding=(0, 1))
        row.add_row(Text("·"), Text(with_commas(sentence.text), style="dim"))
        yield row
