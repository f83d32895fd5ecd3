"""`rote prior`: memorized, or merely likely?"""

import math
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rote.cli.flags import command
from rote.cli.progress import make_progress
from rote.cli.scan import Session
from rote.prior.options import PriorConfig


@command(PriorConfig, Session)
def prior(config: PriorConfig, session: Session) -> None:
    """Tell memorized suffixes from merely likely ones: P(s|p) against the probability after other prefixes."""
    from rote.prior.run import prior_to_folder

    with make_progress("prefixes") as progress:
        done = prior_to_folder(config, progress=progress, command_line=sys.argv, fresh=session.fresh)
    show_prior(done.path)
    if done.was_complete:
        Console(stderr=True).print(f"{done.path} was complete already; --fresh starts over.", soft_wrap=True)


def show_prior(path: Path) -> None:
    """The summary of a finished prior run in the terminal."""
    from rote.store.read import read_run

    manifest = read_run(path).manifest
    assert manifest is not None
    totals = manifest["totals"]
    console = Console()
    console.print(counts_table(totals))
    if merged := totals.get("boundaries_merged"):
        console.print(
            f"In {merged} of them a token reaches over the boundary of prefix and suffix; it counts as suffix whole.",
            highlight=False,
        )
    for length in totals["thresholds"]:
        for tokens, entry in length["by_suffix_tokens"].items():
            n, after = decimal(entry["log_least_ratio"]), length["prefix_tokens"]
            console.print(f"n = {n} for suffixes of {tokens} tokens after {after}", highlight=False)
    for title, rows in totals["examples"].items():
        console.print(f"\n{title.replace('_', ' ')}:", highlight=False)
        for row in rows:
            console.print(f"  {decimal(row['log_ratio']):>9}  {row['suffix_text']!r}", highlight=False, markup=False)
    if "joined" in totals:
        join = totals["joined"]
        share = join["merely_likely_share"]
        console.print(
            f"\nOf {join['scan_extractable']} extractable windows {join['merely_likely']} are merely likely "
            f"({_percent(share)}).",
            highlight=False,
        )
    console.print(f"\nResults and figures: {path}", soft_wrap=True, highlight=False)


def counts_table(totals: dict[str, Any]) -> Table:
    table = Table(
        "suffixes", "scored", "P(s|p) > m", "memorized", "merely likely", "unsettled", "median ratio", box=None
    )
    entries = {**totals["by_kind"], "all": totals["all"]} if len(totals["by_kind"]) > 1 else {"all": totals["all"]}
    for kind, counts in entries.items():
        numbers = (counts[name] for name in ("suffixes", "extractable", "memorized", "merely_likely", "unsettled"))
        table.add_row(kind, *map(str, numbers), decimal(counts["median_log_ratio"]))
    return table


def decimal(log_value: float | str) -> str:
    """exp(log_value) as a person writes it, however large: 3.1, 2.4e+57."""
    value = float(str(log_value).replace("Infinity", "inf"))
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "0"}.get(value, "–")
    power, rest = divmod(value / math.log(10), 1)
    return f"{math.exp(value):.3g}" if -4 <= power < 6 else f"{10**rest:.1f}e{int(power):+d}"


def _percent(share: dict[str, Any]) -> str:
    if isinstance(share["value"], str):
        return "undefined"
    if isinstance(share["low"], str):
        return f"{share['value']:.1%}"
    return f"{share['value']:.1%}, 95 % interval {share['low']:.1%} to {share['high']:.1%}"
