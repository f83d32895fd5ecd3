"""`rote show`: the summary of runs in the terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rote.cli.console import make_console
from rote.cli.flags import command
from rote.errors import ConfigError
from rote.options import Settled, option, required

if TYPE_CHECKING:  # `rote show --help` waits for none of these
    from rich.console import RenderableType

    from rote.report.content import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions(Settled):
    runs: tuple[Path, ...] = required(
        "Run folders of any kind, finished or not; several of one kind are also compared.",
        group="output",
        positional=True,
    )
    queries: tuple[float, ...] = option(
        (), "Of a scan: rates within this many queries; may be repeated.", group="output"
    )
    probability: tuple[float, ...] = option((0.5, 0.9), "Probability for --queries; may be repeated.", group="output")
    threshold: str | None = option(
        None, "Read scans at another τ: a number, or from-control=0.001 for a rate of false positives.", group="output"
    )
    reveal: bool = option(False, "Of a prior run: print what its examples otherwise mask.", group="output")

    json: bool = option(False, "Print it as JSON, one entry a run.", group="output", names="--json")


@command(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show what runs found: rates with intervals, controls beside targets, and the text as a heat strip."""
    from rote.cli.kinds import by_kind, section_of
    from rote.report.content import Asked
    from rote.report.content_terminal import show_content

    asked = Asked(options.queries, options.probability, options.reveal, options.threshold)
    if options.threshold is not None and len(options.runs) > 1:
        raise ConfigError(
            f"threshold is {options.threshold}, but {len(options.runs)} runs were given; show one at a time."
        )
    groups = by_kind(options.runs)
    if options.json:
        from rote.report.content_json import contents_json

        runs = [(section_of(kind), path) for kind, paths in groups.items() for path in paths]
        print(contents_json([section.content([path], asked) for section, path in runs]))
        return
    console = make_console()
    for kind, paths in groups.items():
        section = section_of(kind)
        for path in paths:
            if len(options.runs) > 1:
                console.rule(f"{kind}: {path}", align="left")
            for line in show_run(path, asked):
                console.print(line)
        if len(paths) > 1:
            console.rule(f"{len(paths)} {kind} runs together", align="left")
            for line in show_content(section.read(paths)):
                console.print(line)


def show_run(path: Path, asked: "Asked") -> "Iterable[RenderableType]":
    """One run as its kind shows it."""
    from rote.cli.kinds import kind_of, section_of
    from rote.report.content_terminal import show_content

    section = section_of(kind_of(path))
    return show_content(section.content([path], asked)) if section.show is None else section.show(path, asked)
