"""`rote recall`: how much of a book stands, near-verbatim, in a text that is already there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.corpus.documents import read_documents
from rote.errors import TextError
from rote.longform.alignment import Segment, SegmentKind, segments
from rote.longform.merge import MergePass
from rote.longform.options import AuditOptions
from rote.longform.recall import RecallResult, nv_recall
from rote.options import like, option, required, settle
from rote.types import Split

_STYLES = {
    SegmentKind.SAME: "",
    SegmentKind.MISSING: "red strike",
    SegmentKind.ADDED: "bold blue",
    SegmentKind.ELSEWHERE: "yellow",
}
_WORDS_SHOWN_AT_EACH_END = 12
_BLOCKS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallOptions:
    book: Path = required("The reference text.", group="text")
    generation: Path = required("The text that may contain it.", group="text")
    passes: tuple[MergePass, ...] = like(AuditOptions, "passes")
    repeated_passes: int = option(
        4, "Further passes that look for moved and duplicated passages.", group="audit", at_least=0
    )
    diff: bool = option(False, "Show both texts as one in the terminal.", group="output", names="--diff")
    html: Path | None = option(None, "Write the diff of both texts as a page.", group="output")
    json: Path | None = option(None, "Write every number and block as JSON.", group="output")

    def __post_init__(self) -> None:
        settle(self)


@command(RecallOptions)
def recall(options: RecallOptions) -> None:
    """Measure how much of a book stands near-verbatim in a generated text (nv-recall)."""
    book_text, generation_text = read_one(options.book), read_one(options.generation)
    result = nv_recall(book_text, generation_text, passes=options.passes, repeated_passes=options.repeated_passes)
    console = make_console()
    show_result(console, result)
    if options.diff:
        for line in terminal_diff(segments(book_text, generation_text, result)):
            console.print(line, end=" ")
        console.print()
    if options.html is not None:
        from rote.longform.section import recall_page
        from rote.store.atomic import atomic_file

        title = f"{options.generation.name} against {options.book.name}"
        page = recall_page(book_text, generation_text, result, title=title, facts=facts(result))
        with atomic_file(options.html) as file:
            file.write(page.encode())
    if options.json is not None:
        from rote.store.atomic import write_json

        write_json(options.json, result.record())


def read_one(path: Path) -> str:
    """The text of a file that holds exactly one."""
    documents = read_documents([path], split=Split.TARGET)
    if len(documents) != 1:
        raise TextError(f"{path} holds {len(documents)} texts; give a file with one.")
    return documents[0].text


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
        console.print(f"{name:>20}  {value}")
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
        console.print(f"… and {len(blocks) - _BLOCKS_SHOWN} shorter blocks (all with --json)")


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
