"""`byrote prior`."""

import sys
from pathlib import Path

from byrote.cli.commands import Session, Shown
from byrote.cli.console import make_console, make_progress
from byrote.prior.options import PriorConfig
from byrote.prior.report import read
from byrote.prior.run import prior_to_folder
from byrote.report.content import Asked
from byrote.report.page import write_page
from byrote.report.terminal import print_content


def prior(config: PriorConfig, session: Session, shown: Shown) -> None:
    with make_progress("prefixes") as progress:
        was_complete = prior_to_folder(
            config, progress=progress, say=progress.announce, command_line=sys.argv, fresh=session.fresh
        )
    console, out = make_console(), Path(config.out)
    print_content(read([out], Asked(reveal=shown.reveal)), console)
    page = write_page([read([out])], out / "report").page
    console.print(f"\nResults: {out}\nPage: {page}", soft_wrap=True)
    if was_complete:
        make_console(stderr=True).print(f"{out} was complete already; --fresh starts over.", soft_wrap=True)
