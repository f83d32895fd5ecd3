"""`rote scan`: measure a model on texts and write a run folder."""

import sys
from dataclasses import dataclass

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.look_first import look_first
from rote.cli.progress import make_progress
from rote.options import option, settle
from rote.scan.options import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """How a run folder is opened."""

    fresh: bool = option(False, "Start over instead of resuming.", group="text", names="--fresh/--resume")

    def __post_init__(self) -> None:
        settle(self)


@command(RunConfig, Session)
def scan(config: RunConfig, session: Session) -> None:
    """Measure how much of the texts the model can reproduce, and write a run folder.

    Run the same command again to resume an interrupted run. Every option can also stand in a YAML file (--config).
    """
    config.require_places()
    look_first(model="" if config.is_served else config.model, texts=(*config.text, *config.control))
    from rote.scan.costs import costs_of_checks
    from rote.scan.run import scan_to_folder

    console = make_console(stderr=True)
    for words in costs_of_checks(config):
        console.print(words, soft_wrap=True)
    with make_progress() as progress:
        result = scan_to_folder(config, progress=progress, command_line=sys.argv, fresh=session.fresh)
    if result.was_complete:
        console.print(f"{result.path} was complete already; nothing was measured. --fresh starts over.", soft_wrap=True)
    else:
        for words in result.notes:
            console.print(words, soft_wrap=True)
        console.print(f"Results: {result.path}", soft_wrap=True)
    console.print(f"See them with: rote show {result.path}", soft_wrap=True)
