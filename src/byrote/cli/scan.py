"""`byrote scan`, `byrote merge` and `byrote mc`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from byrote.cli.console import make_console, make_progress
from byrote.cli.flags import command
from byrote.options import Settled, option, required
from byrote.scan.mc import McOptions, sample_to_folder
from byrote.scan.options import RunConfig, runs_of


def look_first(*, model: str, texts: Sequence[str] = ()) -> None:
    """Refuse texts and model folders that are not there or are no plain files, before libraries that take seconds are
    imported. Reads no text and no weights."""
    from byrote.corpus.read import find_files
    from byrote.models.hf.weights import local_folder

    find_files(texts)
    local_folder(model)


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
    from byrote.scan.pilot import costs_of_checks
    from byrote.scan.run import scan_to_folder

    console = make_console(stderr=True)
    for sentence in costs_of_checks(config):
        console.print(sentence, soft_wrap=True)
    for one in runs:
        with make_progress() as progress:
            result = scan_to_folder(one, progress=progress, command_line=sys.argv, fresh=session.fresh)
        if result.was_complete:
            sentences = [f"{result.path} was complete already; nothing was measured. --fresh starts over."]
        else:
            sentences = [*result.notes, f"Results: {result.path}"]
        for sentence in (*sentences, f"See them with: byrote show {result.path}"):
            console.print(sentence, soft_wrap=True)
    if len(runs) > 1:
        console.print(f"Compare them with: byrote report {' '.join(run.out for run in runs)}", soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions(Settled):
    out: Path = required("Run folder to write.", group="output", positional=True)
    shards: tuple[Path, ...] = required(
        "Folders of all shards of one scan (byrote scan --shard 0/3 …), in any order.", group="output", positional=True
    )


@command(MergeOptions)
def merge(options: MergeOptions) -> None:
    """Make one run of the shards of a scan: the same rows and the same audit as of a scan that was never divided."""
    from byrote.scan.merge import merge_shards

    with make_progress() as progress:
        path = merge_shards(options.out, options.shards, progress=progress, command_line=sys.argv)
    for sentence in (f"Results: {path}", f"See them with: byrote show {path}"):
        make_console(stderr=True).print(sentence, soft_wrap=True)


@command(McOptions)
def mc(given: McOptions) -> None:
    """Estimate the near-verbatim mass of a few windows by plain sampling, with an interval.

    Of a run the windows, the model and every option are taken; other weights are refused.
    """
    sampled = sample_to_folder(given, command_line=sys.argv)
    from byrote.report.terminal import cells_table
    from byrote.scan.mc_report import NOT_CERTIFIED, agreement, curve_table, masses_table

    console = make_console()
    console.print(cells_table(masses_table(sampled.rows)))
    if given.curve:
        console.print(cells_table(curve_table(sampled.rows)))
    for sentence in (NOT_CERTIFIED, *agreement(sampled.rows)):
        console.print(sentence, soft_wrap=True)
    if sampled.path is not None:
        make_console(stderr=True).print(f"See it with: byrote show {sampled.path}", soft_wrap=True)
