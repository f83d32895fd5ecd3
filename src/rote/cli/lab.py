"""`rote lab`: experiments on models trained on the spot."""

from dataclasses import dataclass
from pathlib import Path

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rote.cli.console import make_console
from rote.cli.flags import GroupedCommand, command
from rote.lab.options import PresetName
from rote.options import option, required, settle

lab_app = typer.Typer(
    name="lab",
    help="Experiments on small models trained on the spot.",
    rich_markup_mode=None,
)


@lab_app.callback()
def lab() -> None:
    """Experiments on small models trained on the spot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    out: Path = required("Folder for scores, results and the figure; resumed if unfinished.", group="output")
    preset: PresetName = option("quick", "Minutes on two cores (quick), hours (full), or seconds (test).", group="text")
    processes: int | None = option(
        None, "Models trained at once.", group="machine", at_least=1, default_words="one per core"
    )

    def __post_init__(self) -> None:
        settle(self)


@lab_app.command(cls=GroupedCommand)
@command(StudyOptions)
def counterfactual(options: StudyOptions) -> None:
    """Does the cheap ratio agree with counterfactual memorization? Trains models with and without target sequences."""
    from rote.lab.counterfactual_presets import PRESETS
    from rote.lab.run import CounterfactualResult, level_means, run_counterfactual

    plan, out = PRESETS[options.preset], options.out
    console = make_console(stderr=True)
    columns = (TextColumn("training models"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as display:
        task = display.add_task("training", total=None)

        def advance(done: int, total: int) -> None:
            display.update(task, completed=done, total=total)

        result: CounterfactualResult = run_counterfactual(plan, out, processes=options.processes, advance=advance)
    table = Table("exact copies", "near-duplicates", "counterfactual", "log ratio", box=None)
    for row in level_means(result.cells):
        table.add_row(
            f"{row['copies']}", f"{row['near_duplicates']}", f"{row['counterfactual']:.2f}", f"{row['log_ratio']:.2f}"
        )
    shown = make_console()
    shown.print(table)
    low, high = result.agreement.by_target[:2]
    shown.print(
        f"\ncorrelation of log ratio and counterfactual score: {result.agreement.value:.3f}, "
        f"95 % interval {low:.3f} to {high:.3f} (targets resampled); over level means {result.level_correlation:.3f}",
        soft_wrap=True,
    )
    shown.print(f"Results and figure: {out}", soft_wrap=True)
