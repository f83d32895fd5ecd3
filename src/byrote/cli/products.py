"""`byrote audit`, `byrote recall`, `byrote prior` and `byrote lab`: the products beside the scan."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
from rich.text import Text

from byrote.cli.console import make_console, make_progress, make_status
from byrote.cli.flags import GroupedCommand, command
from byrote.cli.scan import Session, look_first
from byrote.corpus.documents import Document, read_documents
from byrote.errors import TextError
from byrote.longform.matching import MergePass
from byrote.longform.options import PROFILES, AuditCommand, AuditOptions
from byrote.longform.recall import Segment, SegmentKind, nv_recall, segments
from byrote.options import Settled, like, option, required
from byrote.prior.options import PriorConfig
from byrote.types import Split


@command(AuditCommand, AuditOptions, profiles=PROFILES)
def audit(command: AuditCommand, options: AuditOptions) -> None:
    """Measure how much of a book a model reproduces when it is asked to go on and on."""
    from byrote.longform.exhibit import terminal_lines
    from byrote.longform.report import write_exhibit
    from byrote.longform.run import perform_audit, read_audit
    from byrote.report.words import plural

    with make_status("asking …") as say:
        result = perform_audit(
            command,
            options,
            command_line=tuple(sys.argv),
            on_answer=lambda place, answered: say(f"{answered:,} answers, now after {place}"),
        )
    console = make_console()
    folder = read_audit(command.out)
    for line in (*terminal_lines(folder), f"{plural(result.sent, 'request')} sent by this process"):
        console.print(line)
    if command.endpoint is None and command.context_tokens is None:
        tokens = folder.manifest["model"]["context_tokens"]
        console.print(
            f"context: {'without limit' if tokens is None else f'{tokens:,} tokens, all that the model takes'}; "
            "where it was trained on shorter sequences, a smaller --context-tokens can recover more",
            soft_wrap=True,
        )
    paths = write_exhibit(command.out)
    for path in (paths.page, paths.bundle):
        console.print(str(path), soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Settled):
    """What the terminal shows."""

    reveal: bool = option(
        False, "Print names, numbers and addresses in examples instead of masking them.", group="output"
    )


@command(PriorConfig, Session, Shown)
def prior(config: PriorConfig, session: Session, shown: Shown) -> None:
    """Tell memorized suffixes from merely likely ones: P(s|p) against the probability after other prefixes."""
    look_first(model=config.model, texts=(*config.text, *config.control, *config.prior_text))
    from byrote.prior.report import read
    from byrote.prior.run import prior_to_folder
    from byrote.report.content import Asked
    from byrote.report.page import write_page
    from byrote.report.terminal import show_content

    with make_progress("prefixes") as progress:
        done = prior_to_folder(
            config, progress=progress, say=progress.announce, command_line=sys.argv, fresh=session.fresh
        )
    console = make_console()
    for part in show_content(read([done.path], Asked(reveal=shown.reveal))):
        console.print(part)
    page = write_page([read([done.path])], done.path / "report").page
    console.print(f"\nResults: {done.path}\nPage: {page}", soft_wrap=True)
    if done.was_complete:
        make_console(stderr=True).print(f"{done.path} was complete already; --fresh starts over.", soft_wrap=True)


DIFF_STYLES = {
    SegmentKind.SAME: "",
    SegmentKind.MISSING: "red strike",
    SegmentKind.ADDED: "bold blue",
    SegmentKind.ELSEWHERE: "yellow",
}
WORDS_AT_EACH_END = 12
"""Of a long piece of a diff; its middle is left out."""


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
    from byrote.longform.recall_run import recall_page, recall_to_folder, summary, write
    from byrote.report.terminal import show_content
    from byrote.store.files import atomic_file, write_json

    book, generation = _only_text(options.book), _only_text(options.generation)
    passes, repeated = options.passes, options.repeated_passes
    if options.out is None:
        result = nv_recall(book.text, generation.text, passes=passes, repeated_passes=repeated)
    else:
        result = recall_to_folder(
            book, generation, options.out, passes=passes, repeated_passes=repeated, command_line=sys.argv,
            fresh=session.fresh,
        )  # fmt: skip
    console = make_console()
    for part in show_content(summary(result, book=book.name, generation=generation.name)):
        console.print(part)
    if options.diff:
        for piece in segments(book.text, generation.text, result):
            console.print(_shown_piece(piece), end=" ")
        console.print()
    if options.out is not None:
        page = write([options.out], options.out / "report").page
        console.print(str(page), soft_wrap=True)
    if options.html is not None:
        title = f"{generation.name} against {book.name}"
        with atomic_file(options.html) as file:
            file.write(recall_page(book.text, generation.text, result, title=title).encode())
        console.print(str(options.html), soft_wrap=True)
    if options.json is not None:
        write_json(options.json, result.record())


def _only_text(path: Path) -> Document:
    """The text of a file that holds exactly one."""
    documents = read_documents([path], split=Split.TARGET)
    if len(documents) != 1:
        raise TextError(f"{path} holds {len(documents)} texts; give a file with one.")
    return documents[0].held()


def _shown_piece(piece: Segment) -> Text:
    """A coloured piece, the middle of a long one left out."""
    words, shown = piece.text.split(), piece.text.rstrip()
    left_out = len(words) - 2 * WORDS_AT_EACH_END
    if left_out > 0:
        head, tail = " ".join(words[:WORDS_AT_EACH_END]), " ".join(words[-WORDS_AT_EACH_END:])
        shown = f"{head} [… {left_out:,} words …] {tail}"
    return Text(shown, style=DIFF_STYLES[piece.kind])


lab_app = typer.Typer(name="lab", help="Experiments on small models trained on the spot.", rich_markup_mode=None)


@lab_app.callback()
def lab() -> None:
    """Experiments on small models trained on the spot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterfactualOptions(Settled):
    out: Path = required("Folder of the run; resumed if unfinished.", group="output")
    preset: Literal["quick", "full", "test"] = option(
        "quick", "Minutes on two cores (quick), hours (full), or seconds (test).", group="text"
    )
    processes: int | None = option(
        None, "Models trained at once.", group="machine", at_least=1, default_words="one per core"
    )


@lab_app.command(cls=GroupedCommand)
@command(CounterfactualOptions, Session)
def counterfactual(options: CounterfactualOptions, session: Session) -> None:
    """Does the cheap ratio agree with counterfactual memorization? Trains models with and without target sequences."""
    from byrote.lab.counterfactual import PRESETS
    from byrote.lab.report import read
    from byrote.lab.run import run_counterfactual
    from byrote.report.page import write_page
    from byrote.report.terminal import show_content

    with make_progress("models") as progress:
        run_counterfactual(
            PRESETS[options.preset],
            options.out,
            processes=options.processes,
            progress=progress,
            command_line=sys.argv,
            fresh=session.fresh,
        )
    content, console = read([options.out]), make_console()
    for part in show_content(content):
        console.print(part)
    page = write_page([content], options.out / "report").page
    console.print(f"\nResults: {options.out}\nPage: {page}", soft_wrap=True)
