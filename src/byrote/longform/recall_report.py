"""How recall runs are shown: numbers and blocks, both texts side by side, several measurements compared."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from byrote.longform.recall import RecallResult
from byrote.longform.recall_run import RecallRun, read_recall
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Link, Section, Written
from byrote.report.words import integer, listed, percent

if TYPE_CHECKING:
    from byrote.report.content import Drawing


BLOCK_HEADS = ("passage", "matched words", "words of the book", "words of the text", "characters of the book")


def facts(result: RecallResult) -> list[tuple[str, str]]:
    return [
        ("nv-recall", percent(result.nv_recall)),
        ("matched words m", f"{integer(result.matched_words)} of {integer(result.book_words)}"),
        ("missing words", integer(result.missing_words)),
        ("additional words", f"{integer(result.additional_words)} of {integer(result.generation_words)}"),
        ("longest block", f"{integer(result.longest_block)} words"),
        ("moved or duplicated", f"{len(result.out_of_order)} blocks, not counted"),
    ]


def blocks_table(result: RecallResult) -> Cells:
    """Every block, longest first."""
    blocks = sorted((*result.blocks, *result.out_of_order), key=lambda block: -block.matched_words)
    rows = tuple(
        (
            block.placement.replace("_", " "),
            integer(block.matched_words),
            f"{integer(block.book_word_start + 1)}–{integer(block.book_word_end)}",
            f"{integer(block.generation_word_start + 1)}–{integer(block.generation_word_end)}",
            f"{integer(block.book_char_start)}–{integer(block.book_char_end)}",
        )
        for block in blocks
    )
    return Cells("blocks", "Passages, longest first", BLOCK_HEADS, rows)


def summary(result: RecallResult, *, book: str, generation: str) -> Content:
    """What one measurement says, stored or not."""
    return Content(
        kind="recall",
        label=f"{generation} against {book}",
        headline=f"{percent(result.nv_recall)} of {book} stands in {generation}, near-verbatim and in order.",
        facts=tuple(facts(result)),
        tables=(blocks_table(result),),
    )


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    runs = [read_recall(path) for path in paths]
    found = [summary(run.result, book=run.book_name, generation=run.generation_name) for run in runs]
    return replace(
        found[0],
        label=listed([each.label for each in found]),
        headline=" ".join(each.headline for each in found),
        date=str(runs[0].manifest["written_at"])[:10],
        facts=found[0].facts if len(runs) == 1 else (),
        tables=found[0].tables if len(runs) == 1 else (_compared(runs),),
        draw=lambda: _drawings(runs),
        manifests=tuple((run.path.name, json.dumps(run.manifest, indent=2, ensure_ascii=False)) for run in runs),
    )


def write(paths: Sequence[Path], out: Path) -> Written:
    """The numbers with their figures, and for each measurement a page with both texts side by side."""
    from byrote.longform.report import recall_page
    from byrote.report.page import write_files, write_page

    pages = {}
    links = []
    for number, run in enumerate(map(read_recall, paths), 1):
        place = f"side-by-side-{number}.html"
        links.append(Link(f"{run.generation_name} and {run.book_name} side by side", place))
        page = recall_page(run.book, run.generation, run.result, title=_label(run), facts=facts(run.result))
        pages[out / place] = page.encode()
    written = write_page([replace(read(paths), links=tuple(links))], out)
    write_files(pages, out)
    return Written(written.page, (*written.others, *pages))


def _label(run: RecallRun) -> str:
    return f"{run.generation_name} against {run.book_name}"


def _compared(runs: Sequence[RecallRun]) -> Cells:
    names = tuple(name for name, _ in facts(runs[0].result))
    rows = tuple((_label(run), *(value for _, value in facts(run.result))) for run in runs)
    return Cells("recalls", "Measurements", ("texts", *names), rows)


def _drawings(runs: Sequence[RecallRun]) -> Iterable["Drawing"]:
    from byrote.longform.report import map_of
    from byrote.report.content import Drawing
    from byrote.report.figures.longform import Recall, recall_bars, word_counts

    if len(runs) == 1:
        caption = "Where the passages stand in the book and in the text."
        yield Drawing("map", caption, map_of(runs[0].result.record()), is_wide=True)
    recalls = [
        Recall(_label(run), found.matched_words, found.book_words, found.generation_words, found.longest_block)
        for run in runs
        for found in [run.result]
    ]
    yield Drawing("nv-recall", "nv-recall: the share of the book's words.", recall_bars(recalls))
    yield Drawing("words", "Words matched, missing and added.", word_counts(recalls))


SECTION = Section(read, write=write)
