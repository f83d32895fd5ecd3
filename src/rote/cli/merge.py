"""`rote merge`: the shards of a scan as one run."""

import sys
from dataclasses import dataclass
from pathlib import Path

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.progress import make_progress
from rote.options import Settled, required


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions(Settled):
    out: Path = required("Run folder to write.", group="output", positional=True)
    shards: tuple[Path, ...] = required(
        "Folders of all shards of one scan (rote scan --shard 0/3 …), in any order.", group="output", positional=True
    )


@command(MergeOptions)
def merge(options: MergeOptions) -> None:
    """Make one run of the shards of a scan: the same rows and the same audit as of a scan that was never divided."""
    from rote.scan.merge_shards import merge_shards

    with make_progress() as progress:
        path = merge_shards(options.out, options.shards, progress=progress, command_line=sys.argv)
    console = make_console(stderr=True)
    console.print(f"Results: {path}", soft_wrap=True)
    console.print(f"See them with: rote show {path}", soft_wrap=True)
