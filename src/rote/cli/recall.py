"""`rote recall`: how much of a book stands, near-verbatim, in a text that is already there."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.scan import Session
from rote.corpus.documents import Document, read_documents
from rote.errors import TextError
from rote.longform.alignment import Segment, SegmentKind, segments
from rote.longform.merge_blocks import MergePass
from rote.longform.options import AuditOptions
from rote.longform.recall import RecallResult, nv_recall
from rote.options import Settled, like, option, required
from rote.types import Split

_STYLES = {
    SegmentKind.SAME: "",
    SegmentKind.MISSING: "red strike",
    SegmentKind.ADDED: "bold blue",
    SegmentKind.ELSEWHERE: "yellow",
}
_WORDS_SHOWN_AT_EACH_END = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallOptions(Settled):
    book: Path = required("The reference text.", group="text")
    generation: Path = required("The text that may contain it.", group="text")
    passes: tuple[MergePass, ...] = like(AuditOptions, "passes")
    repeated_passes: int = option(
        4, "Further passes that look for moved and duplicated passages.", group="audit", at_least=0
    )
    diff: bool = option(False, "Show both texts as one in the terminal.", group="output", names="--diff")
    out: Path | None = option(
        None, "Folder of the run: both texts, every block, the numbers, and a page.", group="output"
    )
    html: Path | None = option(None, "Write the diff of both texts as a page.", group="output")
    json: Path | None = option(None, "Write every number and block as JSON.", group="output")


@command(RecallOptions, Session)
def recall(options: RecallOptions, session: Session) -> None:
    """Measure how much of a book stands near-verbatim in a generated text (nv-recall)."""
    from rote.longform.recall_section import summary
    from rote.report.content_terminal import show_content

    book, generation = read_one(options.book), read_one(options.generation)
    result = measure(book, generation, options, fresh=session.fresh)
    console = make_console()
    for part in show_content(summary(result, book=book.name, generation=generation.name)):
        console.print(part)
    if options.diff:
        for line in terminal_diff(segments(book.text, generation.text, result)):
            console.print(line, end=" ")
        console.print()
    for page in write_files(book, generation, result, options):
        console.print(str(page), soft_wrap=True)


def measure(book: Document, generation: Document, options: RecallOptions, *, fresh: bool) -> RecallResult:
    passes, repeated = options.passes, options.repeated_passes
    if options.out is None:
        return nv_recall(book.text, generation.text, passes=passes, repeated_passes=repeated)
    from rote.longform.recall_run import recall_to_folder

    return recall_to_folder(
        book, generation, options.out, passes=passes, repeated_passes=repeated, command_line=sys.argv, fresh=fresh
    )


def write_files(book: Document, generation: Document, result: RecallResult, options: RecallOptions) -> Iterator[Path]:
    """What was asked for beside the terminal; afterwards each page is yielded."""
    if options.out is not None:
        from rote.longform.recall_section import write
        from rote.report.content import Asked

        yield write([options.out], options.out / "report", Asked()).page
    if options.html is not None:
        from rote.longform.recall_section import facts
        from rote.longform.section import recall_page
        from rote.store.atomic import atomic_file

        title = f"{generation.name} against {book.name}"
        page = recall_page(book.text, generation.text, result, title=title, facts=facts(result))
        with atomic_file(options.html) as file:
            file.write(page.encode())
        yield options.html
    if options.json is not None:
        from rote.store.atomic import write_json

        write_json(options.json, result.record())


def read_one(path: Path) -> Document:
    """The text of a file that holds exactly one."""
    documents = read_documents([path], split=Split.TARGET)
    if len(documents) != 1:
        raise TextError(f"{path} holds {len(documents)} texts; give a file with one.")
    return documents[0].held()


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
