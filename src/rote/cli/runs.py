"""`rote runs`: which runs are in a folder, and what became of them."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.options import Settled, option


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions(Settled):
    folder: Path = option(Path("."), "Where to look, folders inside of it included.", group="output", positional=True)


@command(RunsOptions)
def runs(options: RunsOptions) -> None:
    """List the runs in a folder and below: kind, model, text, date, state and rows."""
    from rote.store.listing import list_runs

    found = list_runs(options.folder)
    console = make_console()
    if not found:
        console.print(f"No run in {options.folder}.", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("run", "kind", "model", "text", "date", "state", "rows"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for run in found:
        rows = "–" if run.rows is None else f"{run.rows:,}"
        table.add_row(run.name, run.kind, run.model, run.text, run.date, run.state, rows)
    console.print(table)
    for run in found:
        if run.reason is not None:
            console.print(f"{run.name}: {run.reason}", soft_wrap=True)
