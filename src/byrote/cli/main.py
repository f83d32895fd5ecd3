"""The `byrote` command. Errors become one sentence and an exit code; a signal leaves a run that resumes."""

import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from byrote.cli.console import make_console, standard_streams
from byrote.cli.demo import demo
from byrote.cli.entry import Stopped, leave, stopping_signals
from byrote.cli.exits import end_with
from byrote.cli.flags import GroupedCommand
from byrote.cli.plan import plan
from byrote.cli.products import audit, lab_app, prior, recall
from byrote.cli.runs import export, gate, report, risk, runs, show, verify_run
from byrote.cli.scan import mc, merge, scan
from byrote.cli.study import recipes, study
from byrote.options import flags_of
from byrote.prior.options import PriorConfig
from byrote.scan.options import RunConfig


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            # Raised by a library; typer would exit without a word.
            raise Stopped(signal.SIGINT) from interrupt

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with its first sentence, whole."""
        sentences = [
            (name, " ".join((self.commands[name].help or "").split("\n\n")[0].split()))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(sentences)


app = typer.Typer(
    name="byrote",
    cls=_Commands,
    help="How much of a text a language model can reproduce, exactly and nearly, with bounds you can defend.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from byrote import __version__

        print(f"byrote {__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options without a command."""


for _command in (
    demo, scan, merge, report, show, gate, risk, runs, export, plan, recall, audit, prior, mc, study, recipes,
    verify_run,
):  # fmt: skip
    app.command(cls=GroupedCommand)(_command)
app.add_typer(lab_app, name="lab")

LIST_FLAGS = {
    option.flag
    for home in (RunConfig, PriorConfig)
    for option in flags_of(home)
    if option.kind.is_list and not option.spec.commas
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit. `byrote.cli.entry` is the entry point of the console script."""
    given = normalised(sys.argv[1:] if arguments is None else arguments)
    with standard_streams(), stopping_signals() as stop, warnings.catch_warnings():
        console = make_console(stderr=True)
        warnings.showwarning = lambda message, *_, **__: console.print(f"warning: {message}", soft_wrap=True)
        try:
            code = app(args=given or ["--help"], standalone_mode=False) or 0
            sys.stdout.flush()
            sys.exit(code)
        except Exception as error:
            if stop.number is not None:
                # A library wrapped the interruption.
                leave(stop.number)
            end_with(error, console)


def normalised(arguments: Sequence[str]) -> list[str]:
    """Arguments as the parser expects them: `--top_k` is `--top-k`, and `--text a b c` is `--text a --text b --text c`,
    so that shells can expand globs."""
    found: list[str] = []
    flag: str | None = None
    for place, argument in enumerate(arguments):
        if argument == "--":
            return [*found, *arguments[place:]]
        if argument.startswith("-"):
            name, *value = argument.split("=", 1)
            found.append("=".join([name.replace("_", "-") if name.startswith("--") else name, *value]))
            flag = found[-1] if found[-1] in LIST_FLAGS else None
        elif flag is not None and found[-1] != flag:
            found += [flag, argument]
        else:
            found.append(argument)
    return found
