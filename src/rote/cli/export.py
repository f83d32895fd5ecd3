"""`rote export`: a run's rows as CSV or JSON Lines."""

from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.errors import ConfigError
from rote.options import option, required, settle
from rote.types import ExportFormat, ExportTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    run: Path = required("A run folder, finished or not.", group="output", positional=True)
    format: ExportFormat | None = option(
        None, "csv keeps lists as JSON; jsonl has one object a line.", group="output", default_words=""
    )
    challenge: Path | None = option(
        None, "Instead, write the guesses of a run over extraction-challenge arrays to this file, likeliest first.",
        group="output",
    )  # fmt: skip
    out: Path | None = option(None, "File to write.", group="output", default_words="beside the run's tables")
    table: ExportTable = option("results", "Which table.", group="output")
    inert: bool = option(
        True, "In CSV, put an apostrophe before texts that a spreadsheet would take for a formula.", group="output"
    )

    def __post_init__(self) -> None:
        settle(self)
        if (self.format is None) == (self.challenge is None):
            raise ConfigError(
                "say what to write: --format csv or --format jsonl for rows, or --challenge FILE for guesses."
            )


@command(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write a run's rows as CSV or JSON Lines, every digit kept; or the guesses of an extraction challenge."""
    console = make_console(stderr=True)
    if options.challenge is not None:
        from rote.scan.challenge import write_guesses

        console.print(write_guesses(options.run, options.challenge).words, soft_wrap=True)
        return
    from rote.store.export import export_run

    assert options.format is not None
    written = export_run(options.run, format=options.format, out=options.out, table=options.table, inert=options.inert)
    rest = "" if written.is_complete else " (the run is not finished: these are its finished windows)"
    console.print(f"{written.rows} rows: {written.path}{rest}", soft_wrap=True)
