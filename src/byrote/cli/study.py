"""`byrote study` and `byrote recipes`: grids of scans from a YAML file."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from byrote.cli.commands import RecipesOptions, StudyCommand, require_inputs
from byrote.cli.console import make_console, make_progress
from byrote.errors import ConfigError
from byrote.options import options_of, require_known
from byrote.study.plan import (
    StudyConfig,
    cell_options,
    plan_study,
    read_study_file,
    recipe_file,
    recipe_files,
    shrunk,
    with_changes,
)


def study(given: StudyCommand) -> None:
    values = read_study_file(given.file)
    out = given.out or values.pop("out", None)
    if out is None:
        raise ConfigError("out is missing; give --out runs/study, or a line `out:` in the file.")
    values.pop("out", None)
    out = Path(out)
    if changes := changes_of(given, values):
        values = with_changes(values, changes, place=str(given.file))
    if given.smoke:
        values = smoke_values(values, out)
    plan = plan_study(values, place=str(given.file))
    for config in plan.configs.values():
        require_inputs(*config.inputs)
    from byrote.study.run import run_study

    with make_progress() as progress:
        was_complete = run_study(
            plan, out, progress=progress, say=progress.announce, command_line=sys.argv, fresh=given.fresh
        )
    console, page = make_console(stderr=True), out / "report" / "index.html"
    if was_complete:
        console.print(f"{out} was complete already; nothing was measured. --fresh starts over.", soft_wrap=True)
    if not was_complete or not page.exists():
        from byrote.report.page import write_page
        from byrote.study.report import read

        with console.status("writing the report"):
            write_page([read([out])], page.parent)
    console.print(f"Report: {page}", soft_wrap=True)
    console.print(f"See it with: byrote show {out}", soft_wrap=True)


TEXTS = ("texts", "pairs", "book")
"""Options that hold what is measured, where it is not `text`."""


def changes_of(given: StudyCommand, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line replaces of a study's file, by option."""
    known = cell_options(values.get("measurement", "scan")) | dict(options_of(StudyConfig))
    changes: dict[str, Any] = {}
    for entry in given.change:
        name, is_given, value = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not is_given or name in ("published", "changed", "machine", "model", *TEXTS, "text", "control"):
            raise ConfigError(f"set is {entry!r}; write --set NAME=VALUE, and models and texts as --model and --text.")
        require_known([name], known, place="--set")
        changes[name] = value.split(",") if "," in value or known[name].kind.is_list else value
    texts = next((name for name in TEXTS if values.get(name)), "text")
    for name, replaced in (("model", given.model), (texts, given.text), ("control", given.control)):
        if replaced:
            changes[name] = list(replaced)
    if given.sample is not None:
        changes["sample"] = given.sample
    return changes


def smoke_values(values: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The file's study on two tiny models and their passages, which are written beside the study."""
    import torch

    from byrote.lab.pocket import smaller_tiny_model, tiny_model

    torch.set_num_threads(1)
    models = (smaller_tiny_model(), tiny_model())
    files = models[1].write_texts(out.parent / f"{out.name}-texts")
    return shrunk(
        values,
        models=tuple(str(model.path) for model in models),
        texts=tuple(sorted(map(str, files.targets.iterdir()))),
        control=str(files.controls),
    )


def recipes(options: RecipesOptions) -> None:
    if options.name is not None:
        print(recipe_file(options.name).read_text(encoding="utf-8"), end="")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("recipe", "what it asks"):
        table.add_column(heading)
    for name, path in recipe_files().items():
        table.add_row(name, read_study_file(path)["about"])
    make_console().print(table)
