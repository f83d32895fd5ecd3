"""Commands made from dataclasses of options: a flag for every option that is one, `--set` for the others, and a YAML
file for all of them."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from byrote.errors import ConfigError
from byrote.options import GroupName, Option, flags_of, gather, require_known, settable_of


def command(*homes: type, profiles: Path | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function of option dataclasses a command: one flag per option, a YAML file for all of them, flags win.

    With `profiles`, a folder of YAML files, settings can also be called by name; the user's own file and flags win.
    """
    options = [option for home in homes for option in settable_of(home)]
    flags = [option for home in homes for option in flags_of(home)]
    further = [option for option in options if not option.spec.is_flag]
    parameters = [_parameter(option) for option in flags]
    parameters.append(_own_flag("config", Path, "YAML file with the same option names; flags win.", "PATH"))
    if further:
        words = "Set one of the further options below, as a YAML file would; may be repeated."
        parameters.append(_own_flag("set", list[str], words, "NAME=VALUE"))
    if profiles is not None:
        words = f"Settings by name: {', '.join(_profiles(profiles))}; --config and flags win."
        parameters.append(_own_flag("profile", str, words, "NAME"))

    def make(run: Callable[..., None]) -> Callable[..., None]:
        def invoke(*, config: Path | None = None, profile: str | None = None, **given: Any) -> None:
            named = None if profile is None or profiles is None else profile_path(profile, profiles)
            assigned = _assigned(given.pop("set", None) or (), options)
            run(*gather(homes, given | assigned, named, config))

        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__name__, invoke.__doc__ = run.__name__, run.__doc__
        invoke.further = further  # type: ignore[attr-defined]
        return invoke

    return make


def profile_path(name: str, folder: Path) -> Path:
    """The file of a profile; a ConfigError lists the names there are."""
    names = _profiles(folder)
    if name not in names:
        raise ConfigError(f"profile is {name!r}; use one of {', '.join(names)}, or a file of your own with --config.")
    return folder / f"{name}.yaml"


def _profiles(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.iterdir() if path.suffix == ".yaml")


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


def _parameter(option: Option) -> inspect.Parameter:
    """Values stay text until the option's own type reads them, so that a bad one gets one of our sentences."""
    details: dict[str, Any] = {"help": option.help, "show_default": False, "rich_help_panel": option.spec.group}
    kind: Any = list[str] | None if option.kind.is_list and not option.spec.commas else str | None
    if option.spec.positional:
        declared: Any = typer.Argument(metavar=option.name.upper(), **details)
    elif option.kind.base is bool:
        kind, declared = bool | None, typer.Option(option.flag, **details)
    else:
        declared = typer.Option(option.flag, metavar=option.metavar, **details)
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, declared]
    )


class GroupedCommand(TyperCommand):
    """A command whose `--help` lists options by group, and then those that `--set` takes."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("arguments", *get_args(GroupName), "options")}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                groups["arguments"].append((str(parameter.name).upper(), str(getattr(parameter, "help", ""))))
            elif (record := parameter.get_help_record(ctx)) is not None:
                groups[getattr(parameter, "rich_help_panel", None) or "options"].append(record)
        further: list[Option] = getattr(self.callback, "further", [])
        groups["further options: --set NAME=VALUE, or a line of the YAML file"] = [
            (f"{option.name} {option.metavar}", option.help) for option in further
        ]
        for name, records in groups.items():
            if records:
                with formatter.section(name[0].upper() + name[1:]):
                    formatter.write_dl(records)
