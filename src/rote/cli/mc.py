"""`rote mc`: sample continuations of a few windows, plainly, as a check on everything cleverer."""

import sys

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.scan.mc_run import McOptions, sample_to_folder


@command(McOptions)
def mc(given: McOptions) -> None:
    """Estimate the near-verbatim mass of a few windows by plain sampling, with an interval.

    Of a run the windows, the model and every option are taken; other weights are refused.
    """
    sampled = sample_to_folder(given, command_line=sys.argv)
    from rote.report.content_terminal import cells_table
    from rote.scan.mc_section import NOT_CERTIFIED, agreement, curve_table, masses_table

    console = make_console()
    console.print(cells_table(masses_table(sampled.rows)))
    if given.curve:
        console.print(cells_table(curve_table(sampled.rows)))
    for sentence in (NOT_CERTIFIED, *agreement(sampled.rows)):
        console.print(sentence, soft_wrap=True)
    if sampled.path is not None:
        make_console(stderr=True).print(f"See it with: rote show {sampled.path}", soft_wrap=True)
