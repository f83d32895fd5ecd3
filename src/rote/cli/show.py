"""`rote show`: the summary of a run in the terminal."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def show(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    queries: Annotated[
        list[float] | None, typer.Option(help="Also show rates within this many queries; may be repeated.")
    ] = None,
    probability: Annotated[
        list[float] | None, typer.Option(help="Probability for --queries; may be repeated. [default: 0.5 0.9]")
    ] = None,
) -> None:
    """Show what a run found: rates with intervals, controls beside targets, and the text as a heat strip."""
    from rote.report.queries import query_tables
    from rote.report.terminal import show_run
    from rote.report.view import load_view

    view = load_view(run)
    console = Console()
    if not queries:
        console.print(show_run(view))
        return
    for table in query_tables(view, queries=queries, probabilities=probability or (0.5, 0.9)):
        console.print(table)
