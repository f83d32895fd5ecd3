"""Commands made from dataclasses of options: a flag for every field, with its type, its default and its explanation."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from byrote.errors import ConfigError
from byrote.options import GroupName, Option, build, flags_of, read_config_file

_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(help="YAML file with the same option names; flags win.", metavar="PATH", show_default=False),
    ],
)


def command(*homes: type, profiles: Path | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function of option dataclasses a command: one flag per field, a YAML file for all of them, flags win.

    With `profiles`, a folder of YAML files, settings can also be called by name; the user's own file and flags win.
    """

    def make(run: Callable[..., None]) -> Callable[..., None]:
        def invoke(*, config: Path | None = None, profile: str | None = None, **given: Any) -> None:
            named = None if profile is None or profiles is None else profile_path(profile, profiles)
            run(*gather(homes, given, named, config))

        parameters = [_parameter(option) for home in homes for option in flags_of(home)]
        parameters += [_CONFIG] if profiles is None else [_CONFIG, _profile(profiles)]
        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__name__, invoke.__doc__ = run.__name__, run.__doc__
        return invoke

    return make


def gather(homes: tuple[type, ...], given: Mapping[str, Any], *files: Path | None) -> list[Any]:
    """The dataclasses with their defaults, then the files in order, then the flags that were given (not None)."""
    merged: dict[str, Any] = {}
    for file in files:
        for name, value in ({} if file is None else read_config_file(file.expanduser(), *homes)).items():
            earlier = merged.get(name)
            merged[name] = earlier | value if isinstance(earlier, dict) and isinstance(value, dict) else value
    return [_gathered(home, given, merged, place=str(files[-1])) for home in homes]


def profile_path(name: str, folder: Path) -> Path:
    """The file of a profile; a ConfigError lists the names there are."""
    names = _profiles(folder)
    if name not in names:
        raise ConfigError(f"profile is {name!r}; use one of {', '.join(names)}, or a file of your own with --config.")
    return folder / f"{name}.yaml"


def _profiles(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.iterdir() if path.suffix == ".yaml")


def _profile(folder: Path) -> inspect.Parameter:
    words = f"Settings by name: {', '.join(_profiles(folder))}; --config and flags win."
    declared = typer.Option(help=words, metavar="NAME", show_default=False)
    return inspect.Parameter(
        "profile", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, declared]
    )


def _gathered(home: Any, given: Mapping[str, Any], from_file: Mapping[str, Any], *, place: str) -> Any:
    values = {name: value for name, value in from_file.items() if name in home.__dataclass_fields__}
    for option in flags_of(home):
        value = given.get(option.name)
        if value is None:
            continue
        if option.owner is None:
            values[option.name] = value
        else:
            values[option.owner] = dict(values.get(option.owner, {})) | {option.name: value}
    return build(home, values, place=place)


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
    """A command whose `--help` lists options by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("arguments", *get_args(GroupName), "options")}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                groups["arguments"].append((str(parameter.name).upper(), str(getattr(parameter, "help", ""))))
            elif (record := parameter.get_help_record(ctx)) is not None:
                groups[getattr(parameter, "rich_help_panel", None) or "options"].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name.capitalize()):
                    formatter.write_dl(records)
