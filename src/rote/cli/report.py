"""`rote report`: runs as one page to read, with figures for a paper and tables for a spreadsheet."""

from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.errors import ConfigError
from rote.options import option, required, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    runs: tuple[Path, ...] = required(
        "Run folders; several are compared side by side.", group="output", positional=True
    )
    out: Path | None = option(
        None, "Where to write the report.", group="output", default_words="RUN/report when there is one run"
    )

    def __post_init__(self) -> None:
        settle(self)


@command(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write a self-contained page with the shaded text, its figures (SVG, PNG), tables (CSV) and a model-card block."""
    # Drawing needs matplotlib, which other commands should not wait for.
    from rote.longform.audit_folder import is_audit
    from rote.longform.section import write_exhibit
    from rote.report.build import build_report

    runs, out = options.runs, options.out
    if len(runs) == 1 and is_audit(runs[0]):
        exhibit = write_exhibit(runs[0], out)
        for path in (exhibit.page, exhibit.bundle):
            make_console().print(Text(str(path)), soft_wrap=True)
        return
    if out is None and len(runs) > 1:
        raise ConfigError(
            f"{len(runs)} runs were given, so their report belongs to none of them; say where with --out."
        )
    paths = build_report(runs, out if out is not None else runs[0] / "report")
    console = make_console()
    console.print(Text(str(paths.page), style="bold"), soft_wrap=True)
    drawn = len({path.stem for path in paths.figures})
    tables = ", ".join(path.name for path in paths.tables)
    console.print(Text(f"{drawn} figures (SVG and PNG); {tables}; {paths.model_card.name}"), soft_wrap=True)
