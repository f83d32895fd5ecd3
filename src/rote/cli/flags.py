"""Commands made from dataclasses of options: a flag for every field, with its type, its default and its explanation."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from rote.options import Option, build, flags_of, read_config_file
from rote.options.declare import GroupName

_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(help="YAML file with the same option names; flags win.", metavar="PATH", show_default=False),
    ],
)


def command(*homes: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function of option dataclasses a command: one flag per field, a YAML file for all of them, flags win."""

    def make(run: Callable[..., None]) -> Callable[..., None]:
        def invoke(*, config: Path | None = None, **given: Any) -> None:
            run(*gather(homes, given, config))

        parameters = [_parameter(option) for home in homes for option in flags_of(home)]
        invoke.__signature__ = inspect.Signature([*parameters, _CONFIG])  # type: ignore[attr-defined]
        invoke.__name__, invoke.__doc__ = run.__name__, run.__doc__
        return invoke

    return make


def gather(homes: tuple[type, ...], given: Mapping[str, Any], config_file: Path | None) -> list[Any]:
    """The dataclasses with their defaults, then the configuration file, then the flags that were given (not None)."""
    from_file = {} if config_file is None else read_config_file(config_file.expanduser(), *homes)
    return [_gathered(home, given, from_file, place=str(config_file)) for home in homes]


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
