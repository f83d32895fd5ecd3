"""`rote export`: a run's rows as CSV or JSON Lines."""

from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.options import option, required, settle
from rote.types import ExportFormat, ExportTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    run: Path = required("A run folder, finished or not.", group="output", positional=True)
    format: ExportFormat = required("csv keeps lists as JSON; jsonl has one object a line.", group="output")
    out: Path | None = option(None, "File to write.", group="output", default_words="beside the run's tables")
    table: ExportTable = option("results", "Which table.", group="output")
    inert: bool = option(
        True, "In CSV, put an apostrophe before texts that a spreadsheet would take for a formula.", group="output"
    )

    def __post_init__(self) -> None:
        settle(self)


@command(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write a run's rows as CSV or JSON Lines, every digit kept."""
    console = make_console(stderr=True)
    from rote.store.export import export_run

    written = export_run(options.run, format=options.format, out=options.out, table=options.table, inert=options.inert)
    rest = "" if written.is_complete else " (the run is not finished: these are its finished windows)"
    console.print(f"{written.rows} rows: {written.path}{rest}", soft_wrap=True)
