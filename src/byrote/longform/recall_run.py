"""`byrote recall` as a run folder, and how such runs are shown: numbers and blocks, both texts side by side, several
measurements compared.

RUN/texts.parquet      the book, then the text that may contain it
RUN/results.parquet    one row a block: where it stands in both, and how many words it has
RUN/manifest.json      written last: the numbers, with versions and hashes
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from byrote.corpus.read import Document
from byrote.longform.matching import MergePass
from byrote.longform.passages import MeasuredText, TextPair, elsewhere_rows, passages_of, render_page, word_range
from byrote.longform.recall import RecallBlock, RecallResult, nv_recall
from byrote.longform.report import map_figure
from byrote.report.content import DEFAULTS, Asked, Cells, Content, Drawing, Link, Section, Written, of_manifests
from byrote.report.figures.longform import Recall, recall_bars, word_counts
from byrote.report.page import write_files, write_page
from byrote.report.words import integer, listed, percent
from byrote.store.columns import Column, Schema
from byrote.store.read import read_finished
from byrote.store.resume import RunSession

BLOCK_COLUMNS: Schema = (
    Column("window_id", "text", is_required=True),
    *(
        Column(field.name, "text" if field.name == "placement" else "int64", is_required=True)
        for field in fields(RecallBlock)
    ),
)


@dataclass(frozen=True)
class RecallRun:
    """A finished measurement, with its texts."""

    path: Path
    manifest: dict[str, Any]
    book: str
    generation: str
    book_name: str
    generation_name: str
    result: RecallResult

    @property
    def label(self) -> str:
        return f"{self.generation_name} against {self.book_name}"


def recall_to_folder(
    book: Document,
    generation: Document,
    out: Path,
    *,
    passes: Sequence[MergePass],
    repeated_passes: int,
    command_line: Sequence[str] = (),
    fresh: bool = False,
) -> RecallResult:
    """Measure, and keep everything the number rests on; a finished run is read, not measured again."""
    config = {"passes": [asdict(each) for each in passes], "repeated_passes": repeated_passes}
    texts = {"book": book.content_hash, "generation": generation.content_hash}
    with RunSession.open(
        out, kind="recall", identity={"config": config, "texts": texts}, schema=BLOCK_COLUMNS, fresh=fresh
    ) as session:
        if session.is_complete:
            return read_recall(out).result
        result = nv_recall(book.text, generation.text, passes=passes, repeated_passes=repeated_passes)
        session.write_texts([book, generation])
        blocks = [
            {"window_id": f"block-{number:06d}", **asdict(block)}
            for number, block in enumerate((*result.blocks, *result.out_of_order))
        ]
        names = {book.name: book, f"generation:{generation.name}": generation}
        manifest = {
            "config": config,
            "texts": {
                name: {"content_hash": text.content_hash, "characters": text.characters} for name, text in names.items()
            },
            "command_line": command_line,
            "totals": {
                "nv_recall": result.nv_recall,
                "matched_words": result.matched_words,
                "book_words": result.book_words,
            },
            "recall": result.record(),
        }
        session.complete_with(blocks, manifest)
        return result


def read_recall(path: Path) -> RecallRun:
    """The measurement at `path`; a RunError when it is another kind of run, unfinished, or not as it was written."""
    run, manifest = read_finished(path, "recall")
    assert run.texts is not None  # a recall keeps its texts
    book, generation = run.texts.to_dicts()
    result = RecallResult.from_record(manifest["recall"])
    return RecallRun(path, manifest, book["text"], generation["text"], book["name"], generation["name"], result)


def facts(result: RecallResult) -> list[tuple[str, str]]:
    return [
        ("nv-recall", percent(result.nv_recall)),
        ("matched words m", f"{integer(result.matched_words)} of {integer(result.book_words)}"),
        ("missing words", integer(result.missing_words)),
        ("additional words", f"{integer(result.additional_words)} of {integer(result.generation_words)}"),
        ("longest block", f"{integer(result.longest_block)} words"),
        ("moved or duplicated", f"{len(result.out_of_order)} blocks, not counted"),
    ]


def summary(result: RecallResult, *, book: str, generation: str) -> Content:
    """What one measurement says, stored or not."""
    blocks = sorted((*result.blocks, *result.out_of_order), key=lambda block: -block.matched_words)
    heads = ("passage", "matched words", "words of the book", "words of the text", "characters of the book")
    rows = tuple(
        (
            block.placement.replace("_", " "),
            integer(block.matched_words),
            word_range(block.book_word_start, block.book_word_end),
            word_range(block.generation_word_start, block.generation_word_end),
            f"{integer(block.book_char_start)}–{integer(block.book_char_end)}",
        )
        for block in blocks
    )
    return Content(
        kind="recall",
        label=f"{generation} against {book}",
        headline=f"{percent(result.nv_recall)} of {book} stands in {generation}, near-verbatim and in order.",
        facts=tuple(facts(result)),
        tables=(Cells("blocks", "Passages, longest first", heads, rows),),
    )


def read(paths: Sequence[Path], asked: Asked = DEFAULTS) -> Content:
    runs = [read_recall(path) for path in paths]
    found = [summary(run.result, book=run.book_name, generation=run.generation_name) for run in runs]
    heads = ("texts", *dict(found[0].facts))
    rows = tuple((run.label, *dict(each.facts).values()) for run, each in zip(runs, found, strict=True))
    compared = Cells("recalls", "Measurements", heads, rows)
    return replace(
        found[0],
        label=listed([each.label for each in found]),
        headline=" ".join(each.headline for each in found),
        facts=found[0].facts if len(runs) == 1 else (),
        tables=found[0].tables if len(runs) == 1 else (compared,),
        draw=lambda: _drawings(runs),
        **of_manifests([(run.path.name, run.manifest) for run in runs]),
    )


def write(paths: Sequence[Path], out: Path) -> Written:
    """The numbers with their figures, and for each measurement a page with both texts side by side."""
    pages = {}
    links = []
    for number, run in enumerate(map(read_recall, paths), 1):
        place = f"side-by-side-{number}.html"
        links.append(Link(f"{run.generation_name} and {run.book_name} side by side", place))
        page = recall_page(run.book, run.generation, run.result, title=run.label)
        pages[out / place] = page.encode()
    written = write_page([replace(read(paths), links=tuple(links))], out)
    write_files(pages, out)
    return Written(written.page, (*written.others, *pages))


def recall_page(book: str, generation: str, result: RecallResult, *, title: str) -> str:
    """The page of one measurement: the map, the passages, and both texts side by side."""
    measured = [MeasuredText(result, TextPair(book, generation))]
    passages = passages_of(measured)
    values = {
        "headline": title,
        "facts": facts(result),
        "book_words": integer(result.book_words),
        "maps": [{"name": "the book", "given": [], "found": [one["on_map"] for one in passages]}],
        "passages": passages,
        "elsewhere": list(elsewhere_rows(measured)),
    }
    return render_page("recall.html", values)


def _drawings(runs: Sequence[RecallRun]) -> Iterator[Drawing]:
    if len(runs) == 1:
        caption = "Where the passages stand in the book and in the text."
        yield Drawing("map", caption, map_figure(runs[0].result.record()), is_wide=True)
    recalls = [
        Recall(run.label, found.matched_words, found.book_words, found.generation_words, found.longest_block)
        for run in runs
        for found in [run.result]
    ]
    yield Drawing("nv-recall", "nv-recall: the share of the book's words.", recall_bars(recalls))
    yield Drawing("words", "Words matched, missing and added.", word_counts(recalls))


SECTION = Section(read, write)
