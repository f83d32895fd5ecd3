"""`rote show`: the summary of a run in the terminal."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def show(run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")]) -> None:
    """Show what a run found: rates with intervals, controls beside targets, and the text as a heat strip."""
    from rote.report.terminal import show_run
    from rote.report.view import load_view

    Console().print(show_run(load_view(run)))
