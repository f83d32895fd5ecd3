"""`rote recipes`: the published experiments that come with rote."""

from dataclasses import dataclass

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.options import Settled, option


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipesOptions(Settled):
    name: str | None = option(None, "Print the file of this recipe.", group="output", positional=True)


@command(RecipesOptions)
def recipes(options: RecipesOptions) -> None:
    """List published experiments that `rote study NAME` runs, or print the file of one."""
    from rich.table import Table

    from rote.options import read_config_file
    from rote.scan.options import RunConfig
    from rote.study.options import StudyConfig
    from rote.study.shipped import recipe_file, recipe_files

    if options.name is not None:
        print(recipe_file(options.name).read_text(encoding="utf-8"), end="")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("recipe", "what it asks"):
        table.add_column(heading)
    for name, path in recipe_files().items():
        table.add_row(name, read_config_file(path, StudyConfig, RunConfig)["about"])
    make_console().print(table)
