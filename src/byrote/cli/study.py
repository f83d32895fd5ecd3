"""`byrote study` and `byrote recipes`: grids of scans from a YAML file."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byrote.cli.console import make_console, make_progress
from byrote.cli.flags import command
from byrote.cli.scan import look_first
from byrote.errors import ConfigError
from byrote.options import Settled, option, read_config_file, required
from byrote.scan.options import RunConfig
from byrote.study.options import StudyConfig
from byrote.study.recipes import file_of, recipe_file, recipe_files, shrunk


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCommand(Settled):
    file: Path = required(
        "YAML file of the study, or the name of a recipe (byrote recipes lists them).", group="text", positional=True
    )
    out: Path | None = option(
        None, "Folder of the study; an unfinished one is resumed.", group="text", default_words="out of the file"
    )
    fresh: bool = option(False, "Start over instead of resuming.", group="text", names="--fresh/--resume")
    smoke: bool = option(
        False, "Try the file on a model that is trained on the spot: two values an axis, ten windows.", group="text",
        names="--smoke",
    )  # fmt: skip


@command(StudyCommand)
def study(given: StudyCommand) -> None:
    """Scan a grid of models, texts, lengths, beam widths and policies, and lay the results over each other.

    Every option of byrote scan may stand in the file; one with a list of values is an axis of the grid. Run the same
    command again to go on with an interrupted study.
    """
    values = read_config_file(file_of(given.file), StudyConfig, RunConfig)
    out = given.out or values.pop("out", None)
    if out is None:
        raise ConfigError("out is missing; give --out runs/study, or a line `out:` in the file.")
    values.pop("out", None)
    out = Path(out)
    facts: dict[str, dict[str, Any]] = {}
    if given.smoke:
        values, facts = smoke_values(values, out)
    from byrote.study.plan import plan_study

    plan = plan_study(values, place=str(given.file), document_facts=facts)
    for scan in plan.scans.values():
        look_first(model="" if scan.is_served else scan.model, texts=(*scan.text, *scan.control))
    from byrote.study.run import run_study

    with make_progress() as progress:
        result = run_study(
            plan, out, progress=progress, say=progress.announce, command_line=sys.argv, fresh=given.fresh
        )
    console, page = make_console(stderr=True), out / "report" / "index.html"
    if result.was_complete:
        console.print(f"{out} was complete already; nothing was measured. --fresh starts over.", soft_wrap=True)
    if not result.was_complete or not page.exists():
        from byrote.report.page import write_page
        from byrote.study.report import read

        with console.status("writing the report"):
            write_page([read([out])], page.parent)
    console.print(f"Report: {page}", soft_wrap=True)
    console.print(f"See it with: byrote show {out}", soft_wrap=True)


def smoke_values(values: Mapping[str, Any], out: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The file's study on two tiny models and their passages, which are written beside the study."""
    import torch

    from byrote.lab.pocket import smaller_tiny_model, tiny_model

    torch.set_num_threads(1)
    models = (smaller_tiny_model(), tiny_model())
    files = models[1].write_texts(out.parent / f"{out.name}-texts")
    small = shrunk(
        values,
        models=tuple(str(model.path) for model in models),
        texts=tuple(sorted(map(str, files.targets.iterdir()))),
        control=str(files.controls),
    )
    return small, models[1].document_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipesOptions(Settled):
    name: str | None = option(None, "Print the file of this recipe.", group="output", positional=True)


@command(RecipesOptions)
def recipes(options: RecipesOptions) -> None:
    """List published experiments that `byrote study NAME` runs, or print the file of one."""
    if options.name is not None:
        print(recipe_file(options.name).read_text(encoding="utf-8"), end="")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("recipe", "what it asks"):
        table.add_column(heading)
    for name, path in recipe_files().items():
        table.add_row(name, read_config_file(path, StudyConfig, RunConfig)["about"])
    make_console().print(table)
