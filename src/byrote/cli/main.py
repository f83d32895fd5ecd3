"""The `byrote` command. Errors become one sentence and an exit code; a signal leaves a run that resumes."""

import errno
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from byrote import __version__
from byrote.cli.commands import COMMANDS, counterfactual
from byrote.cli.console import OutputError, make_console, standard_streams
from byrote.cli.entry import Stopped, leave, stopping_signals
from byrote.cli.from_options import GroupedCommand, show_all
from byrote.errors import ByroteError
from byrote.options import NO_REMOTE_CODE, flags_of
from byrote.printable import printable, redacted
from byrote.prior.options import PriorConfig
from byrote.scan.options import RunConfig

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for flags that do not exist or lack a value; it has no public name in every version."""
BAD_INPUT, OUR_MISTAKE = 2, 70
_LONGEST_QUOTE = 200
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "failed to map segment", "can't start new thread")
ABOUT_A_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors of paths that a user gave, wherever they are first used."""
ABOUT_A_DEVICE = frozenset({
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EMFILE,
    errno.ENFILE,
})  # fmt: skip
"""Errors of reading, writing and closing any file."""
READER_LEFT = 1


def end_with(error: Exception, console: Console) -> NoReturn:
    """Print one sentence for an error and exit with its code."""
    if isinstance(error, OutputError) and error.has_no_reader:
        sys.exit(READER_LEFT)
    if isinstance(error, ByroteError):
        refuse(console, str(error))
    if isinstance(error, UsageError):
        path = error.ctx.command_path if error.ctx is not None else "byrote"
        further = [] if error.ctx is None else getattr(error.ctx.command.callback, "further", [])
        name = str(getattr(error, "option_name", "")).removeprefix("--").replace("-", "_")
        if name == "trust_remote_code":
            refuse(console, NO_REMOTE_CODE)
        advice = f"write --set {name}=VALUE, or " if name in [option.name for option in further] else ""
        words = f"{error.format_message().rstrip('.')}; {advice}see {path} --help."
        refuse(console, words.replace("?;", "? Or"))
    if _is_out_of_memory(error):
        refuse(console, "the memory is used up; give smaller numbers, such as --batch-windows, slots or --beam-width.")
    if isinstance(error, OSError) and error.errno in ABOUT_A_NAME and error.filename is not None:
        name = str(error.filename)[:_LONGEST_QUOTE]
        refuse(console, f"{name} cannot be used: {str(error.strerror).lower()}; give another path.")
    if isinstance(error, OSError) and error.errno in ABOUT_A_DEVICE:
        name = "a file" if error.filename is None else str(error.filename)[:_LONGEST_QUOTE]
        refuse(
            console, f"{name} cannot be read or written: {str(error.strerror).lower()}; mend that, then run it again."
        )
    _report_mistake(console, error)


def refuse(console: Console, sentence: str, *, code: int = BAD_INPUT) -> NoReturn:
    console.print(
        Text("error: ", style="bold red").append(printable(redacted(sentence)), style="default not bold"),
        soft_wrap=True,
    )
    sys.exit(code)


def _is_out_of_memory(error: Exception) -> bool:
    """NumPy raises MemoryError; torch, the loader of libraries and threads are recognised by their words."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError | ImportError) and any(part in str(error).lower() for part in _OUT_OF_MEMORY)


def _report_mistake(console: Console, error: Exception) -> NoReturn:
    """The traceback goes to a file that only its owner can read: it may quote texts, though no key."""
    quoted = redacted(" ".join(f"{type(error).__name__}: {error}".split()))[:_LONGEST_QUOTE].rstrip(". ")
    lines = redacted("".join(traceback.format_exception(error)))
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="byrote-", suffix="-traceback.txt", delete=False) as file:
            file.write(lines.encode("utf-8", "backslashreplace"))
        advice = f"please report it with its traceback, {file.name}"
    except OSError as storage:
        advice = f"its traceback could not be written ({storage.strerror})"
    refuse(console, f"unexpected {quoted}. This is a mistake in byrote; {advice}.", code=OUR_MISTAKE)


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
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"byrote {__version__}")
        raise typer.Exit


HelpAll = Annotated[bool, typer.Option("--help-all", is_eager=True, callback=show_all, hidden=True)]


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    help_all: HelpAll = False,
) -> None:
    """Options without a command."""


lab_app = typer.Typer(name="lab", help="Experiments on small models trained on the spot.", rich_markup_mode=None)


@lab_app.callback()
def lab(help_all: HelpAll = False) -> None:
    """Experiments on small models trained on the spot."""


for _command in COMMANDS:
    app.command(cls=GroupedCommand)(_command)
lab_app.command(cls=GroupedCommand)(counterfactual)
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
