"""`byrote scan` and `byrote merge`."""

import sys

from byrote.cli.commands import MergeOptions, Session
from byrote.cli.console import make_console, make_progress
from byrote.models.base import LanguageModel
from byrote.report.terminal import terminal_text
from byrote.scan.merge import merge_shards
from byrote.scan.options import RunConfig, runs_of
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
            from byrote.report.summary import headline_of  # takes long to import: not before the first window

            if words := headline_of(result.path):
                console.print(terminal_text(words, style="bold"), soft_wrap=not console.is_terminal)
        for sentence in (*sentences, f"See them with: byrote show {result.path}"):
            console.print(sentence, soft_wrap=True)
    if len(runs) > 1:
        console.print(f"Compare them with: byrote report {' '.join(run.out for run in runs)}", soft_wrap=True)


def merge(options: MergeOptions) -> None:
    with make_progress() as progress:
        path = merge_shards(options.out, options.shards, progress=progress, command_line=sys.argv)
    for sentence in (f"Results: {path}", f"See them with: byrote show {path}"):
        make_console(stderr=True).print(sentence, soft_wrap=True)
