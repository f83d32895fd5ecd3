"""`rote recall`: how much of a book stands, near-verbatim, in a text that is already there."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rote.corpus.documents import read_documents
from rote.errors import ConfigError, TextError
from rote.longform.alignment import Segment, SegmentKind, segments
from rote.longform.merge import PUBLISHED_PASSES, MergePass
from rote.longform.recall import RecallResult, nv_recall
from rote.report.diff import diff_page
from rote.store.atomic import atomic_file, write_json
from rote.types import Split

_PUBLISHED = [f"{p.max_gap},{p.max_misalignment},{p.min_words}" for p in PUBLISHED_PASSES]
_STYLES = {
    SegmentKind.SAME: "",
    SegmentKind.MISSING: "red strike",
    SegmentKind.ADDED: "bold blue",
    SegmentKind.ELSEWHERE: "yellow",
}
_WORDS_SHOWN_AT_EACH_END = 12
_BLOCKS_SHOWN = 20


def recall(
    book: Annotated[Path, typer.Option(help="The reference text.")],
    generation: Annotated[Path, typer.Option(help="The text that may contain it.")],
    merge_pass: Annotated[
        list[str] | None,
        typer.Option(
            "--pass",
            help="One merge-and-filter pass as GAP,ALIGNMENT,MINIMUM in words; repeat it for several passes. "
            f"Default: {' then '.join(_PUBLISHED)}.",
        ),
    ] = None,
    repeated_passes: Annotated[
        int, typer.Option(help="Further passes that look for moved and duplicated passages.")
    ] = 4,
    diff: Annotated[bool, typer.Option("--diff", help="Show both texts as one in the terminal.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the diff of both texts as a page.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write every number and block as JSON.")] = None,
) -> None:
    """Measure how much of a book stands near-verbatim in a generated text (nv-recall)."""
    book_text, generation_text = read_one(book), read_one(generation)
    passes = [parse_pass(text) for text in merge_pass] if merge_pass else PUBLISHED_PASSES
    result = nv_recall(book_text, generation_text, passes=passes, repeated_passes=repeated_passes)
    console = Console()
    show_result(console, result)
    if diff:
        for line in terminal_diff(segments(book_text, generation_text, result)):
            console.print(line, end=" ", highlight=False)
        console.print()
    if html is not None:
        page = diff_page(
            segments(book_text, generation_text, result),
            title=f"{generation.name} against {book.name}",
            facts=facts(result),
        )
        with atomic_file(html) as file:
            file.write(page.encode())
    if json is not None:
        write_json(json, result.record())


def read_one(path: Path) -> str:
    """The text of a file that holds exactly one."""
    documents = read_documents([path], split=Split.TARGET)
    if len(documents) != 1:
        raise TextError(f"{path} holds {len(documents)} texts; give a file with one.")
    return documents[0].text


def parse_pass(text: str) -> MergePass:
    try:
        max_gap, max_misalignment, min_words = (int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--pass {text!r} is not GAP,ALIGNMENT,MINIMUM; write three numbers like 2,1,20.") from None
    return MergePass(max_gap=max_gap, max_misalignment=max_misalignment, min_words=min_words)


def facts(result: RecallResult) -> list[tuple[str, str]]:
    return [
        ("nv-recall", f"{result.nv_recall:.2%}"),
        ("matched words m", f"{result.matched_words:,} of {result.book_words:,}"),
        ("missing words", f"{result.missing_words:,}"),
        ("additional words", f"{result.additional_words:,} of {result.generation_words:,}"),
        ("longest block", f"{result.longest_block:,} words"),
        ("moved or duplicated", f"{len(result.out_of_order)} blocks, not counted"),
    ]


def show_result(console: Console, result: RecallResult) -> None:
    for name, value in facts(result):
        console.print(f"{name:>20}  {value}", highlight=False)
    blocks = sorted((*result.blocks, *result.out_of_order), key=lambda block: -block.matched_words)
    if not blocks:
        return
    table = Table("matched", "book words", "book characters", "generation words", "placement", box=None)
    for block in blocks[:_BLOCKS_SHOWN]:
        table.add_row(
            f"{block.matched_words:,}",
            f"{block.book_word_start:,}–{block.book_word_end:,}",
            f"{block.book_char_start:,}–{block.book_char_end:,}",
            f"{block.generation_word_start:,}–{block.generation_word_end:,}",
            block.placement.replace("_", " "),
        )
    console.print(table)
    if len(blocks) > _BLOCKS_SHOWN:
        console.print(f"… and {len(blocks) - _BLOCKS_SHOWN} shorter blocks (all with --json)", highlight=False)


def terminal_diff(pieces: Iterable[Segment]) -> Iterator[Text]:
    """Coloured pieces with the inside of long ones left out."""
    for piece in pieces:
        words = piece.text.split()
        left_out = len(words) - 2 * _WORDS_SHOWN_AT_EACH_END
        if left_out > 0:
            head, tail = words[:_WORDS_SHOWN_AT_EACH_END], words[-_WORDS_SHOWN_AT_EACH_END:]
            shown = f"{' '.join(head)} [… {left_out:,} words …] {' '.join(tail)}"
        else:
            shown = piece.text.rstrip()
        yield Text(shown, style=_STYLES[piece.kind])
