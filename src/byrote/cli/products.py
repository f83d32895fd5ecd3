"""`byrote audit`: how much of a book a chat endpoint or a local model reproduces at length."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.text import Text

from byrote.cli.console import make_console, make_progress, make_status
from byrote.cli.flags import GroupedCommand, command
from byrote.cli.scan import Session, look_first
from byrote.corpus.documents import Document, read_documents
from byrote.errors import TextError
from byrote.lab.counterfactual import PresetName
from byrote.longform.matching import MergePass
from byrote.longform.options import PROFILES, AuditOptions
from byrote.longform.recall import RecallResult, Segment, SegmentKind, nv_recall, segments
from byrote.longform.run import AuditCommand, perform_audit
from byrote.options import Settled, like, option, required
from byrote.prior.options import PriorConfig
from byrote.types import Split


@command(AuditCommand, AuditOptions, profiles=PROFILES)
def audit(command: AuditCommand, options: AuditOptions) -> None:
    """Measure how much of a book a model reproduces when it is asked to go on and on."""
    from byrote.longform.exhibit import terminal_lines
    from byrote.longform.folder import read_audit
    from byrote.longform.report import write_exhibit
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
    from byrote.longform.recall_report import summary
    from byrote.report.terminal import show_content

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
    from byrote.longform.recall_run import recall_to_folder

    return recall_to_folder(
        book, generation, options.out, passes=passes, repeated_passes=repeated, command_line=sys.argv, fresh=fresh
    )


def write_files(book: Document, generation: Document, result: RecallResult, options: RecallOptions) -> Iterator[Path]:
    """What was asked for beside the terminal; afterwards each page is yielded."""
    if options.out is not None:
        from byrote.longform.recall_report import write

        yield write([options.out], options.out / "report").page
    if options.html is not None:
        from byrote.longform.recall_report import facts
        from byrote.longform.report import recall_page
        from byrote.store.files import atomic_file

        title = f"{generation.name} against {book.name}"
        page = recall_page(book.text, generation.text, result, title=title, facts=facts(result))
        with atomic_file(options.html) as file:
            file.write(page.encode())
        yield options.html
    if options.json is not None:
        from byrote.store.files import write_json

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


lab_app = typer.Typer(name="lab", help="Experiments on small models trained on the spot.", rich_markup_mode=None)


@lab_app.callback()
def lab() -> None:
    """Experiments on small models trained on the spot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(Settled):
    out: Path = required("Folder of the run; resumed if unfinished.", group="output")
    preset: PresetName = option("quick", "Minutes on two cores (quick), hours (full), or seconds (test).", group="text")
    processes: int | None = option(
        None, "Models trained at once.", group="machine", at_least=1, default_words="one per core"
    )


@lab_app.command(cls=GroupedCommand)
@command(StudyOptions, Session)
def counterfactual(options: StudyOptions, session: Session) -> None:
    """Does the cheap ratio agree with counterfactual memorization? Trains models with and without target sequences."""
    from byrote.lab.counterfactual import PRESETS
    from byrote.lab.report import read
    from byrote.lab.run import run_counterfactual
    from byrote.report.page import write_page
    from byrote.report.terminal import show_content

    plan, out = PRESETS[options.preset], options.out
    with make_progress("models") as progress:
        told: list[int] = []

        def advance(done: int, total: int) -> None:
            progress.advance(done - told[-1]) if told else progress.start(total, done)
            told.append(done)

        run_counterfactual(
            plan, out, processes=options.processes, advance=advance, command_line=sys.argv, fresh=session.fresh
        )
    content, shown = read([out]), make_console()
    for part in show_content(content):
        shown.print(part)
    shown.print(f"\nResults: {out}\nPage: {write_page([content], out / 'report').page}", soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipesOptions(Settled):
    name: str | None = option(None, "Print the file of this recipe.", group="output", positional=True)


@command(RecipesOptions)
def recipes(options: RecipesOptions) -> None:
    """List published experiments that `byrote study NAME` runs, or print the file of one."""
    from rich.table import Table

    from byrote.options import read_config_file
    from byrote.scan.options import RunConfig
    from byrote.study.options import StudyConfig
    from byrote.study.recipes import recipe_file, recipe_files

    if options.name is not None:
        print(recipe_file(options.name).read_text(encoding="utf-8"), end="")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("recipe", "what it asks"):
        table.add_column(heading)
    for name, path in recipe_files().items():
        table.add_row(name, read_config_file(path, StudyConfig, RunConfig)["about"])
    make_console().print(table)
