"""`rote scan`: measure a model on texts and write a run folder."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.look_first import look_first
from rote.cli.progress import make_progress
from rote.options import Settled, option
from rote.scan.options import RunConfig
from rote.scan.series import runs_of

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Settled):
    """How a run folder is opened."""

    fresh: bool = option(False, "Start over instead of resuming.", group="text", names="--fresh/--resume")


@command(RunConfig, Session)
def scan(config: RunConfig, session: Session) -> None:
    """Measure how much of the texts the model can reproduce, and write a run folder.

    Run the same command again to resume an interrupted run. Every option can also stand in a YAML file (--config).
    """
    config.require_places()
    runs = runs_of(config)
    for one in runs:
        look_first(model="" if one.is_served else one.model, texts=(*one.text, *one.control))
    from rote.scan.costs import costs_of_checks

    console = make_console(stderr=True)
    for words in costs_of_checks(config):
        console.print(words, soft_wrap=True)
    for one in runs:
        _scan(one, session, console)
    if len(runs) > 1:
        console.print(f"Compare them with: rote report {' '.join(run.out for run in runs)}", soft_wrap=True)


def _scan(config: RunConfig, session: Session, console: "Console") -> None:
    from rote.scan.run import scan_to_folder

    with make_progress() as progress:
        result = scan_to_folder(config, progress=progress, command_line=sys.argv, fresh=session.fresh)
    if result.was_complete:
        console.print(f"{result.path} was complete already; nothing was measured. --fresh starts over.", soft_wrap=True)
    else:
        for words in result.notes:
            console.print(words, soft_wrap=True)
        console.print(f"Results: {result.path}", soft_wrap=True)
    console.print(f"See them with: rote show {result.path}", soft_wrap=True)
