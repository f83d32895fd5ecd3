"""`rote scan`: measure a model on texts and write a run folder."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rote.cli.options import config_from, scan_parameters
from rote.cli.progress import make_progress

HELP = """Measure how much of the texts the model can reproduce, and write a run folder.

Run the same command again to resume an interrupted run. Every option can also stand in a YAML file (--config)."""


def scan(
    *,
    config: Annotated[Path | None, typer.Option(help="YAML file with the same option names; flags win.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="Start over instead of resuming.")] = False,
    **flags: Any,
) -> None:
    from rote.scan.run import scan_to_folder

    options = config_from(flags, config)
    with make_progress() as progress:
        result = scan_to_folder(options, progress=progress, command_line=sys.argv, fresh=fresh)
    console = Console(stderr=True)
    if result.was_complete:
        console.print(f"{result.path} was complete already; nothing was measured. --fresh starts over.", soft_wrap=True)
    else:
        console.print(f"Results: {result.path}", soft_wrap=True, highlight=False)
    console.print(f"See them with: rote show {result.path}", soft_wrap=True, highlight=False)


def scan_command() -> Callable[..., None]:
    """`scan` with one keyword parameter per option of RunConfig, as typer wants to see it."""
    own = [
        parameter
        for parameter in inspect.signature(scan).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    def command(**values: Any) -> None:
        scan(**values)

    command.__signature__ = inspect.Signature([*scan_parameters(), *own])  # type: ignore[attr-defined]
    command.__doc__ = HELP
    return command
