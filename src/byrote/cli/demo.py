"""`byrote demo`: the whole product on a model that is trained on the spot, so that nothing has to be downloaded."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from byrote.cli.console import make_console, make_progress
from byrote.cli.flags import command
from byrote.options import Settled, like, option
from byrote.scan.options import RunConfig

INTRODUCTION = (
    "A small language model is trained on invented prose and records. Some passages are in its training data once, "
    "others up to 128 times, some only in another edition, and the control passages never. byrote then measures how "
    "much "
    "of each passage the model can reproduce: word for word (greedy decoding), with what probability (verbatim), and "
    "with what probability within five token edits (near-verbatim)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions(Settled):
    out: Path = option(Path("demo"), "Folder for the texts, the run and the report.", group="text")
    stride_chars: int = like(RunConfig, "stride_chars", default=120)


@command(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Train a pocket model, scan what it memorized, and write a report. Takes about three minutes on two cores."""
    import torch

    from byrote.lab.pocket import pocket_model
    from byrote.report.page import write_page
    from byrote.scan.report import read
    from byrote.scan.run import scan_to_folder

    # The model is so small that a second thread waits more than it works, above all on shared cores.
    torch.set_num_threads(1)
    console = make_console(stderr=True)
    console.print(INTRODUCTION)
    with _training_bar(console) as report_training:
        pocket = pocket_model(progress=report_training)
    files = pocket.write_texts(options.out / "texts")
    config = RunConfig(
        model=str(pocket.path),
        text=(str(files.targets),),
        control=(str(files.controls),),
        out=str(options.out / "run"),
        stride_chars=options.stride_chars,
    )
    facts = pocket.document_facts
    with make_progress() as progress:
        result = scan_to_folder(config, progress=progress, command_line=sys.argv, document_facts=facts)
    with console.status("writing the report"):
        report = write_page([read([result.path])], result.path / "report")
    make_console().print(copies_table(result.path, facts))
    console.print(Text("\nReport: ").append(str(report.page.resolve()), style="bold"), soft_wrap=True)
    console.print(f"Terminal summary: byrote show {result.path}", soft_wrap=True)


class _training_bar:
    """A bar while the pocket model trains; silent when the model is cached or there is no terminal."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("training the pocket model"), BarColumn(), TextColumn("{task.fields[loss]}"))
        self._display = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self._task: TaskID | None = None

    def __enter__(self) -> Any:
        self._display.__enter__()
        return self._report

    def _report(self, state: Any) -> None:
        if self._task is None:
            self._task = self._display.add_task("", total=state.steps, loss="")
        self._display.update(self._task, completed=state.step, loss=f"loss {state.loss:.2f}")

    def __exit__(self, *details: Any) -> None:
        self._display.__exit__(*details)


def copies_table(run: Path, facts: dict[str, dict[str, Any]]) -> Table:
    """Copies in training against the share of windows that come out, controls last: those that rates count, which share
    no passage with a target."""
    import polars as pl

    from byrote.store.read import read_run

    stored = read_run(run)
    threshold = float((stored.manifest or {})["config"]["threshold"])
    results = stored.results.filter(pl.col("shared_with").is_null()).with_columns(
        pl.col("document")
        .map_elements(lambda name: _group(facts.get(name.removeprefix("target/"))), return_dtype=pl.String)
        .alias("group")
    )
    table = Table(title=f"share of windows extractable at τ = {threshold:g}, with 95 % interval", box=None)
    for name, justify in (("copies in training", "right"), ("windows", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("greedy, exact", "verbatim", "near-verbatim"):
        table.add_column(name, justify="right")
    for group in sorted(results["group"].unique(), key=_group_order):
        rows = results.filter(pl.col("group") == group)
        hits = (
            (rows["greedy_levenshtein"] == 0).fill_null(False),  # null: seen to be beyond the budget
            rows["p_verbatim"] >= threshold,
            rows["mass_lower"].list.last() >= threshold,
        )
        table.add_row(group, str(rows.height), *(_rate_words(rows, hit) for hit in hits))
    return table


def _group(fact: dict[str, Any] | None) -> str:
    if fact is None:
        return "control: 0"
    return f"{fact['copies']} of another edition" if fact["kind"] == "edition" else str(fact["copies"])


def _group_order(group: str) -> tuple[int, int]:
    kind = 2 if group.startswith("control") else 1 if "edition" in group else 0
    return kind, int("".join(character for character in group if character.isdigit()))


def _rate_words(rows: Any, hits: Any) -> str:
    from byrote.stats.clusters import rate_with_clusters

    lengths = (rows["char_end"] - rows["char_start"]).max()
    rate = rate_with_clusters(
        hits.to_numpy(), rows["document"].to_list(), rows["char_start"].to_numpy(), window_chars=int(lengths)
    )
    if math.isnan(rate.interval.low):
        return f"{rate.value:.0%}"
    return f"{rate.value:.0%} ({rate.interval.low:.0%}–{rate.interval.high:.0%})"
