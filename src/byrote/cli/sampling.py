"""`byrote mc` and `byrote prior`: what comes out of many draws."""

import sys
from pathlib import Path

from byrote.cli.commands import Session, Shown
from byrote.cli.console import make_console, make_progress
from byrote.prior.options import PriorConfig
from byrote.prior.report import read
from byrote.prior.run import prior_to_folder
from byrote.report.content import Asked
from byrote.report.page import write_page
from byrote.report.terminal import cells_table, print_content
from byrote.scan.mc import sample_to_folder
from byrote.scan.mc_report import NOT_CERTIFIED, agreement, masses_table
from byrote.scan.options import McOptions


def mc(given: McOptions, session: Session) -> None:
    rows = sample_to_folder(given, command_line=sys.argv, fresh=session.fresh)
    console = make_console()
    console.print(cells_table(masses_table(rows)))
    for sentence in (NOT_CERTIFIED, *agreement(rows)):
        console.print(sentence, soft_wrap=True)
    if given.out is not None:
        make_console(stderr=True).print(f"See it with: byrote show {given.out}", soft_wrap=True)


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
