"""`rote lab`: experiments on models trained on the spot."""

import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from rote.cli.console import make_console
from rote.cli.flags import GroupedCommand, command
from rote.cli.progress import make_progress
from rote.cli.scan import Session
from rote.lab.options import PresetName
from rote.options import Settled, option, required

lab_app = typer.Typer(name="lab", help="Experiments on small models trained on the spot.", rich_markup_mode=None)


@lab_app.callback()
def lab() -> None:
    """Experiments on small models trained on the spot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(Settled):
    out: Path = required("Folder of the run; resumed if unfinished.", group="output")
    preset: PresetName = option("quick", "Minutes on two cores (quick), hours (full), or seconds (test).", group="text")
    processes: int | None = option(
        None, "Models trained at once.", group="machine", at_least=1, default_words="one per core"
    )


@lab_app.command(cls=GroupedCommand)
@command(StudyOptions, Session)
def counterfactual(options: StudyOptions, session: Session) -> None:
    """Does the cheap ratio agree with counterfactual memorization? Trains models with and without target sequences."""
    from rote.lab.counterfactual_presets import PRESETS
    from rote.lab.run import run_counterfactual
    from rote.lab.section import read
    from rote.report.content_page import write_page
    from rote.report.content_terminal import show_content

    plan, out = PRESETS[options.preset], options.out
    with make_progress("models") as progress:
        told: list[int] = []

        def advance(done: int, total: int) -> None:
            progress.advance(done - told[-1]) if told else progress.start(total, done)
            told.append(done)

        run_counterfactual(
            plan, out, processes=options.processes, advance=advance, command_line=sys.argv, fresh=session.fresh
        )
    content, shown = read([out]), make_console()
    for part in show_content(content):
        shown.print(part)
    shown.print(f"\nResults: {out}\nPage: {write_page([content], out / 'report').page}", soft_wrap=True)
