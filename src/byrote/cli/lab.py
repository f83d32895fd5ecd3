"""`byrote demo` and `byrote lab`: small models that are trained on the spot, so that nothing has to be downloaded."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from byrote.cli.commands import CounterfactualOptions, DemoOptions, Session
from byrote.cli.console import make_console, make_progress
from byrote.lab.counterfactual import PRESETS, run_counterfactual
from byrote.lab.counterfactual import read as read_counterfactual
from byrote.lab.pocket import pocket_model
from byrote.lab.removal import PLANS, run_removal
from byrote.report.analysis.groups import NAMES, copies_rates
from byrote.report.page import write_page
from byrote.report.terminal import print_content, terminal_text
from byrote.report.view import load_view
from byrote.scan.options import RunConfig
from byrote.scan.report import read as read_scan
from byrote.scan.run import scan_to_folder
from byrote.stats.intervals import Rate

INTRODUCTION = (
    "A small language model is trained on invented prose and records. Some passages are in its training data once, "
    "others up to 128 times, some only in another edition, and the control passages never. byrote then measures how "
    "much of each passage the model can reproduce: word for word (greedy decoding), with what probability "
    "(verbatim), and with what probability within five token edits (near-verbatim)."
)


def demo(options: DemoOptions) -> None:
    # The model is so small that a second thread waits more than it works, above all on shared cores.
    torch.set_num_threads(1)
    console = make_console(stderr=True)
    console.print(INTRODUCTION)
    with make_progress("steps") as progress:
        pocket = pocket_model(progress=progress)
    files = pocket.write_texts(options.out / "texts")
    model = shutil.copytree(pocket.path, options.out / "pocket", dirs_exist_ok=True)
    config = RunConfig(
        model=str(model),
        text=(str(files.targets),),
        control=(str(files.controls),),
        out=str(options.out / "run"),
        stride_chars=options.stride_chars,
    )
    with make_progress() as progress:
        result = scan_to_folder(config, progress=progress, command_line=sys.argv, document_facts=pocket.document_facts)
    with console.status("writing the report"):
        content = read_scan([result.path])
        report = write_page([content], result.path / "report")
    results = make_console()
    results.print(terminal_text(content.headline, style="bold"), Text(), copies_table(result.path), sep="\n")
    console.print(Text("\nReport: ").append(str(report.page.resolve()), style="bold"), soft_wrap=True)
    console.print(f"Terminal summary: byrote show {result.path}", soft_wrap=True)


def copies_table(run: Path) -> Table:
    """Copies in training against the share of windows that come out, controls last: those that rates count, which share
    no passage with a target."""
    view = load_view(run)
    groups: dict[tuple[bool, bool, int], list[Rate]] = {}
    for entry in copies_rates(view):
        if entry.criterion in NAMES:
            groups.setdefault((entry.copies == 0, entry.is_other_edition, entry.copies), []).append(entry.rate)
    title = f"share of windows extractable at τ = {view.threshold:g}, with 95 % interval"
    table = Table(title=title, box=None, padding=(0, 0, 0, 2), pad_edge=False)
    for name in ("copies in training", "windows"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("greedy, exact", "verbatim", "near-verbatim"):
        table.add_column(name, justify="right")
    for (is_control, is_other_edition, copies), rates in sorted(groups.items()):
        name = "control: 0" if is_control else f"{copies}, other edition" if is_other_edition else str(copies)
        table.add_row(name, str(rates[0].n), *map(_rate_words, rates))
    return table


def _rate_words(rate: Rate) -> str:
    if not rate.interval.is_defined:
        return f"{rate.value:.0%}"
    return f"{rate.value:.0%} ({rate.interval.low:.0%}–{rate.interval.high:.0%})"


def counterfactual(options: CounterfactualOptions, session: Session) -> None:
    given: dict[str, Any] = {"command_line": sys.argv, "fresh": session.fresh}
    if options.text:
        plan = PLANS[options.preset]
        plan = replace(plan, models=options.models or plan.models)
        with make_progress("steps") as progress:
            run_removal(plan, options.text, options.out, device=options.device, progress=progress, **given)
    else:
        given["processes"] = options.processes
        with make_progress("models") as progress:
            run_counterfactual(PRESETS[options.preset], options.out, progress=progress, **given)
    content, console = read_counterfactual([options.out]), make_console()
    print_content(content, console)
    page = write_page([content], options.out / "report").page
    console.print(f"\nResults: {options.out}\nPage: {page}", soft_wrap=True)
