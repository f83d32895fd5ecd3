"""Flags generated from the fields of RunConfig: same names, same defaults, same help, declared once."""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from rote.scan.options import RunConfig, parse_value, read_config_file


def scan_parameters() -> list[inspect.Parameter]:
    """Keyword parameters for typer, one per option."""
    return [_parameter(item) for item in fields(RunConfig)]


def _parameter(item: "Field[Any]") -> inspect.Parameter:
    flag = "--" + item.name.replace("_", "-")
    kind = str(item.type)
    help_text = f"{item.metadata['help']} [default: {_shown(item.default)}]"
    annotation: Any
    if kind == "bool" or item.type is bool:
        annotation = Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=help_text, show_default=False)]
    elif item.name in ("text", "control"):
        annotation = Annotated[list[str] | None, typer.Option(flag, help=help_text, show_default=False)]
    else:
        # Text until parse_value has seen it, so that a bad value gets one of our sentences.
        annotation = Annotated[str | None, typer.Option(flag, help=help_text, show_default=False)]
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _shown(default: Any) -> str:
    if default is MISSING or default in ("", (), None):
        return "none"
    return ",".join(default) if isinstance(default, tuple) else str(default)


def config_from(flags: Mapping[str, Any], config_file: Path | None) -> RunConfig:
    """Defaults, then the configuration file, then the flags that were given."""
    chosen: dict[str, Any] = {} if config_file is None else read_config_file(config_file)
    for name, value in flags.items():
        if value is not None:
            chosen[name] = parse_value(name, value)
    return RunConfig(**chosen)
