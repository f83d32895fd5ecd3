"""`rote show`: the summary of a run in the terminal."""

from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.prior import show_prior
from rote.options import option, required, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    run: Path = required("A run folder, finished or not.", group="output", positional=True)
    queries: tuple[float, ...] = option(
        (), "Also show rates within this many queries; may be repeated.", group="output"
    )
    probability: tuple[float, ...] = option((0.5, 0.9), "Probability for --queries; may be repeated.", group="output")
    reveal: bool = option(False, "Of a prior run: print what its examples otherwise mask.", group="output")

    def __post_init__(self) -> None:
        settle(self)


@command(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show what a run found: rates with intervals, controls beside targets, and the text as a heat strip."""
    from rote.longform.audit_folder import is_audit, read_audit
    from rote.longform.exhibit_words import terminal_lines
    from rote.report.queries import query_tables
    from rote.report.terminal import show_run
    from rote.report.view import load_view
    from rote.store.read import read_run

    console = make_console()
    if is_audit(options.run):
        for line in terminal_lines(read_audit(options.run)):
            console.print(line)
        return
    if read_run(options.run).kind == "prior":
        show_prior(options.run, reveal=options.reveal)
        return
    view = load_view(options.run)
    if not options.queries:
        console.print(show_run(view))
        return
    for table in query_tables(view, queries=options.queries, probabilities=options.probability):
        console.print(table)
