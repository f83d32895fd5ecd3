"""`rote report`: runs of any kind as pages to read, with figures for a paper and tables for a spreadsheet."""

from dataclasses import dataclass, replace
from pathlib import Path

from rich.text import Text

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.cli.show import ShowOptions
from rote.errors import ConfigError
from rote.options import Settled, like, option, required
from rote.report.content import Asked, Written

NOTHING_FURTHER = Asked()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Settled):
    runs: tuple[Path, ...] = required(
        "Run folders of any kind; several of one kind are compared, several kinds share a page.",
        group="output",
        positional=True,
    )
    out: Path | None = option(
        None, "Where to write the report.", group="output", default_words="RUN/report when there is one run"
    )
    threshold: str | None = like(ShowOptions, "threshold")


@command(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write a self-contained page of one run or several, with its figures (SVG, PNG) and tables (CSV)."""
    from rote.store.atomic import refuse_link

    runs, out = options.runs, options.out
    if out is None and len(runs) > 1:
        raise ConfigError(
            f"{len(runs)} runs were given, so their report belongs to none of them; say where with --out."
        )
    asked = Asked(threshold=options.threshold)
    if out is None:
        refuse_link(runs[0] / "report")
    written = write_report(runs, out if out is not None else runs[0] / "report", asked)
    console = make_console()
    console.print(Text(str(written.page), style="bold"), soft_wrap=True)
    drawn = len({path.stem for path in written.others if path.suffix == ".svg"})
    beside = [path.name for path in written.others if path.suffix not in (".svg", ".png")]
    figures = [f"{drawn} {'figure' if drawn == 1 else 'figures'} (SVG and PNG)"] if drawn else []
    console.print(Text("; ".join([*figures, *dict.fromkeys(beside)])), soft_wrap=True)


def write_report(runs: tuple[Path, ...], out: Path, asked: Asked = NOTHING_FURTHER) -> Written:
    """The kind's own page when all runs are of one kind; otherwise one page that holds and links them all."""
    from rote.cli.kinds import by_kind, section_of
    from rote.report.content import Link
    from rote.report.content_page import write_page
    from rote.store.atomic import make_folder

    if not runs:
        raise ConfigError("No run was given; name at least one folder that was --out of a run.")
    groups = by_kind(runs)
    sections = {kind: section_of(kind) for kind in groups}
    if len(groups) == 1:
        ((kind, paths),) = groups.items()
        section = sections[kind]
        return write_page([section.read(paths)], out) if section.write is None else section.write(paths, out, asked)
    if asked.threshold is not None:
        raise ConfigError(f"threshold is {asked.threshold}, but runs of several kinds were given; give scans alone.")
    contents, others = [], []
    for kind, paths in groups.items():
        content, write = sections[kind].read(paths), sections[kind].write
        if write is not None:
            make_folder(out / kind, inside=out)
            own = write(paths, out / kind, asked)
            link = Link("The whole report, with its texts", own.page.relative_to(out).as_posix())
            content = replace(content, links=(*content.links, link))
            others += [own.page, *own.others]
        contents.append(content)
    page = write_page(contents, out)
    return Written(page.page, (*page.others, *others))
