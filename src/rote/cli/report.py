"""`rote report`: runs as one page to read, with figures for a paper and tables for a spreadsheet."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rote.errors import ConfigError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared side by side.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the report; by default RUN/report when there is one run.")
    ] = None,
) -> None:
    """Write a self-contained page with the shaded text, its figures (SVG, PNG), tables (CSV) and a model-card block."""
    # Drawing needs matplotlib, which other commands should not wait for.
    from rote.report.build import build_report

    if out is None and len(runs) > 1:
        raise ConfigError(
            f"{len(runs)} runs were given, so their report belongs to none of them; say where with --out."
        )
    paths = build_report(runs, out if out is not None else runs[0] / "report")
    console = Console()
    console.print(Text(str(paths.page), style="bold"), soft_wrap=True)
    drawn = len({path.stem for path in paths.figures})
    tables = ", ".join(path.name for path in paths.tables)
    console.print(Text(f"{drawn} figures (SVG and PNG); {tables}; {paths.model_card.name}"), soft_wrap=True)
