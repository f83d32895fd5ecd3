"""`rote export`: a run's rows as CSV or JSON Lines."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rote.store.export import export_run


class ExportFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


class ExportTable(StrEnum):
    RESULTS = "results"
    CONTINUATIONS = "continuations"


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    format: Annotated[ExportFormat, typer.Option(help="csv keeps lists as JSON; jsonl has one object a line.")],
    out: Annotated[Path | None, typer.Option(help="File to write; by default beside the run's tables.")] = None,
    table: Annotated[ExportTable, typer.Option(help="Which table.")] = ExportTable.RESULTS,
) -> None:
    """Write a run's rows as CSV or JSON Lines, every digit kept."""
    written = export_run(run, format=format.value, out=out, table=table.value)
    console = Console(stderr=True)
    rest = "" if written.is_complete else " (the run is not finished: these are its finished windows)"
    console.print(f"{written.rows} rows: {written.path}{rest}", soft_wrap=True, highlight=False)
