"""Commands made from dataclasses of options: a flag for every option that has one, `--set` for the others, and a
YAML file for all of them."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from byrote.cli.console import make_status, verbosity
from byrote.errors import ConfigError
from byrote.options import GroupName, Option, flags_of, gather, profile_names, profile_path, require_known, settable_of

MANY = 20
"""A command with more flags than that shows the common ones in `--help`, and all in `--help-all`."""


def command(
    *homes: type, module: str, profiles: Path | None = None, needs: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function of option dataclasses a command: one flag per option, a YAML file for all of them, flags win.

    The function checks what it can without waiting for heavy libraries. Then the one of the same name in
    `byrote.cli.<module>`, which is imported now, does the work.

    With `profiles`, a folder of YAML files, settings can also be called by name; the user's own file and flags win.
    `needs` has the words of options that this command cannot do without, though others can.
    """
    options = [option for home in homes for option in settable_of(home)]
    flags = [option for home in homes for option in flags_of(home)]
    further = [option for option in options if not option.spec.is_flag]
    parameters = [_parameter(option, needs.get(option.name)) for option in flags]
    parameters.append(_own_flag("config", list[Path], "YAML file with the same option names; flags win.", "PATH"))
    if further:
        words = "Set one of the further options below, as a YAML file would; may be repeated."
        parameters.append(_own_flag("set", list[str], words, "NAME=VALUE"))
    if profiles is not None:
        words = f"Settings by name: {', '.join(profile_names(profiles))}; --config and flags win."
        parameters.append(_own_flag("profile", str, words, "NAME"))
    parameters += [_switch("verbose", "-v", "Also log what is being done."), _switch("quiet", "-q", "Results only.")]
    rare = {option.name for option in flags if not (option.spec.is_common or option.is_required)}
    rare = rare | {"set"} if len(flags) > MANY else set()
    parameters.append(
        _switch("help_all", "--help-all", "Show every option and exit.", callback=show_all, hidden=not rare)
    )

    def make(check: Callable[..., None]) -> Callable[..., None]:
        def invoke(*, config: Sequence[Path] | None = None, profile: str | None = None, **given: Any) -> None:
            if config and len(config) > 1:
                raise ConfigError(f"config was given {len(config)} times; put the options into one file.")
            is_verbose, is_quiet = given.pop("verbose", False), given.pop("quiet", False)
            named = None if profile is None or profiles is None else profile_path(profile, profiles)
            assigned = _assigned(given.pop("set", None) or (), options)
            for name in assigned:
                if given.get(name) not in (None, (), []):
                    raise ConfigError(f"{name} was given as a flag and with --set; leave one of them out.")
            settled = gather(homes, given | assigned, named, config[0] if config else None)
            with verbosity(is_verbose=is_verbose, is_quiet=is_quiet):
                check(*settled)
                with (
                    make_status("loading libraries") if module in ("scan", "sampling") else nullcontext()
                ):  # torch: seconds
                    commands = import_module(f"byrote.cli.{module}")
                getattr(commands, check.__name__)(*settled)

        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__name__, invoke.__doc__ = check.__name__, check.__doc__
        invoke.further, invoke.rare = further, rare  # type: ignore[attr-defined]
        # Typer 0.16 loses the help of arguments to click 8.5.
        invoke.arguments = {option.name: option.help for option in flags if option.spec.positional}  # type: ignore[attr-defined]
        return invoke

    return make


def _assigned(entries: Iterable[str], options: Sequence[Option]) -> dict[str, str]:
    """`--set NAME=VALUE`, by name; the last one counts."""
    values: dict[str, str] = {}
    for entry in entries:
        name, is_given, value = entry.partition("=")
        if not is_given:
            raise ConfigError(f"set is {entry!r}; write --set NAME=VALUE.")
        values[name.strip().replace("-", "_")] = value
    require_known(values, [option.name for option in options], place="--set")
    return values


def _own_flag(name: str, kind: Any, words: str, metavar: str) -> inspect.Parameter:
    declared = typer.Option(f"--{name}", help=words, metavar=metavar, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, declared]
    )


def _switch(name: str, flag: str, words: str, *, callback: Any = None, hidden: bool = False) -> inspect.Parameter:
    flags = dict.fromkeys((f"--{name.replace('_', '-')}", flag))
    is_eager = callback is not None
    declared = typer.Option(*flags, help=words, show_default=False, is_eager=is_eager, callback=callback, hidden=hidden)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, declared])


def show_all(ctx: typer.Context, is_asked: bool) -> None:
    if is_asked:
        ctx.meta[SHOWS_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


SHOWS_ALL = "byrote.help_all"


def _parameter(option: Option, needed: str | None = None) -> inspect.Parameter:
    """Values stay text until the option's own type reads them, so that a bad one gets one of our sentences."""
    words = option.help if needed is None else f"{option.spec.help} [{needed}]"
    details: dict[str, Any] = {"help": words, "show_default": False, "rich_help_panel": option.spec.group}
    kind: Any = list[str] | None if option.kind.is_list and not option.spec.commas else str | None
    if option.spec.positional:
        declared: Any = typer.Argument(metavar=option.name.upper(), **details)
    elif option.kind.base is bool:
        kind, declared = bool | None, typer.Option(option.flag, **details)
    else:
        declared = typer.Option(option.flag, *option.spec.aliases, metavar=option.metavar, **details)
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, declared]
    )


class GroupedCommand(TyperCommand):
    """A command whose `--help` lists options by group, and then those that `--set` takes."""

    @property
    def _arguments(self) -> dict[str | None, str]:
        return getattr(self.callback, "arguments", {})

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What must be given stands without brackets."""
        pieces = ["[OPTIONS]"]
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = f"{str(parameter.name).upper()}{'...' if parameter.nargs == -1 else ''}"
                is_needed = self._arguments[parameter.name].endswith("[required]")
                pieces.append(name if is_needed else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rare: set[str] = set() if ctx.meta.get(SHOWS_ALL) else getattr(self.callback, "rare", set())
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("arguments", *get_args(GroupName), "options")}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                groups["arguments"].append((str(parameter.name).upper(), self._arguments[parameter.name]))
            elif parameter.name not in rare and (record := parameter.get_help_record(ctx)) is not None:
                groups[getattr(parameter, "rich_help_panel", None) or "options"].append(record)
        further: list[Option] = [] if rare else getattr(self.callback, "further", [])
        groups["further options: --set NAME=VALUE, or a line of the YAML file"] = [
            (f"{option.name} {option.metavar}", option.help) for option in further
        ]
        for name, records in groups.items():
            if records:
                with formatter.section(name[0].upper() + name[1:]):
                    formatter.write_dl(records)
