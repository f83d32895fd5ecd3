"""`byrote scan`, `byrote merge`, `byrote mc` and `byrote prior`."""

import sys
from pathlib import Path

from rich.console import Console

from byrote.cli.commands import MergeOptions, Session, Shown
from byrote.cli.console import make_console, make_progress
from byrote.models.base import LanguageModel
from byrote.prior.options import PriorConfig
from byrote.report.content import Asked
from byrote.scan.mc import sample_to_folder
from byrote.scan.merge import merge_shards
from byrote.scan.options import McOptions, RunConfig, runs_of
from byrote.scan.run import scan_to_folder


def scan(config: RunConfig, session: Session) -> None:
    console, runs = make_console(stderr=True), runs_of(config)
    kept: dict[str, LanguageModel] = {}
    for one in runs:
        with make_progress() as progress:
            result = scan_to_folder(one, progress=progress, command_line=sys.argv, fresh=session.fresh, kept=kept)
        if result.was_complete:
            sentences = [f"{result.path} was complete already; nothing was measured. --fresh starts over."]
        else:
            sentences = [*result.notes, f"Results: {result.path}"]
        if not one.shard:  # a share of the windows is no answer
            _print_headline(result.path, console)
        for sentence in (*sentences, f"See them with: byrote show {result.path}"):
            console.print(sentence, soft_wrap=True)
    if len(runs) > 1:
        console.print(f"Compare them with: byrote report {' '.join(run.out for run in runs)}", soft_wrap=True)


def _print_headline(run: Path, console: Console) -> None:
    # Reading and telling takes long to import: not before the first window.
    from byrote.report.summary import headline
    from byrote.report.terminal import terminal_text
    from byrote.report.view import load_view

    view = load_view(run)
    # Runs without probabilities have several answers.
    if view.population.has_masses:
        console.print(terminal_text(headline([view]), style="bold"), soft_wrap=not console.is_terminal)


def merge(options: MergeOptions) -> None:
    with make_progress() as progress:
        path = merge_shards(options.out, options.shards, progress=progress, command_line=sys.argv)
    for sentence in (f"Results: {path}", f"See them with: byrote show {path}"):
        make_console(stderr=True).print(sentence, soft_wrap=True)


def mc(given: McOptions, session: Session) -> None:
    from byrote.report.terminal import cells_table
    from byrote.scan.mc_report import NOT_CERTIFIED, agreement, masses_table  # draws: not for every scan

    rows = sample_to_folder(given, command_line=sys.argv, fresh=session.fresh)
    console = make_console()
    console.print(cells_table(masses_table(rows)))
    for sentence in (NOT_CERTIFIED, *agreement(rows)):
        console.print(sentence, soft_wrap=True)
    if given.out is not None:
        make_console(stderr=True).print(f"See it with: byrote show {given.out}", soft_wrap=True)


def prior(config: PriorConfig, session: Session, shown: Shown) -> None:
    from byrote.prior.report import read
    from byrote.prior.run import prior_to_folder
    from byrote.report.page import write_page
    from byrote.report.terminal import print_content

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
