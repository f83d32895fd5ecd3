"""`rote prior`: memorized, or merely likely?"""

import sys
from dataclasses import dataclass

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.look_first import look_first
from rote.cli.progress import make_progress
from rote.cli.scan import Session
from rote.options import Settled, option
from rote.prior.options import PriorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Settled):
    """What the terminal shows."""

    reveal: bool = option(
        False, "Print names, numbers and addresses in examples instead of masking them.", group="output"
    )


@command(PriorConfig, Session, Shown)
def prior(config: PriorConfig, session: Session, shown: Shown) -> None:
    """Tell memorized suffixes from merely likely ones: P(s|p) against the probability after other prefixes."""
    look_first(model=config.model, texts=(*config.text, *config.control, *config.prior_text))
    from rote.prior.run import prior_to_folder
    from rote.prior.section import read
    from rote.report.content import Asked
    from rote.report.content_page import write_page
    from rote.report.content_terminal import show_content

    with make_progress("prefixes") as progress:
        done = prior_to_folder(
            config, progress=progress, say=progress.announce, command_line=sys.argv, fresh=session.fresh
        )
    console = make_console()
    for part in show_content(read([done.path], Asked(reveal=shown.reveal))):
        console.print(part)
    page = write_page([read([done.path])], done.path / "report").page
    console.print(f"\nResults: {done.path}\nPage: {page}", soft_wrap=True)
    if done.was_complete:
        make_console(stderr=True).print(f"{done.path} was complete already; --fresh starts over.", soft_wrap=True)
