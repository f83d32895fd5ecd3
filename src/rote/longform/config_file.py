"""Options of an audit from a file (YAML or JSON) and from the command line, which wins."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from rote.errors import ConfigError
from rote.longform.merge import MergePass
from rote.longform.options import AuditOptions, GenerationSettings, Style, Sweep

_NESTED = {"settings": GenerationSettings, "sweep": Sweep}


def read_options(path: Path | None, given: Mapping[str, Any], *, settings: Mapping[str, Any]) -> AuditOptions:
    """Defaults, then the file, then what the command line gave (None: not given)."""
    values = dict(_read(path)) if path is not None else {}
    values |= {name: value for name, value in given.items() if value is not None}
    chosen = {name: value for name, value in settings.items() if value is not None}
    values["settings"] = _mapping("settings", values.get("settings") or {}) | chosen
    options: AuditOptions = _build(AuditOptions, values, place="the audit's options")
    return options


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read --config {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not YAML or JSON: {' '.join(str(error).split())}.") from error
    return _mapping(str(path), content or {})


def _build(kind: Any, values: Mapping[str, Any], *, place: str) -> Any:
    hints = get_type_hints(kind)
    known = {entry.name for entry in fields(kind)}
    for name in values:
        if name not in known:
            raise ConfigError(f"{name!r} is unknown in {place}; known are {', '.join(sorted(known))}.")
    converted = {name: _convert(name, value, hints[name]) for name, value in values.items()}
    return kind(**converted)


def _convert(name: str, value: Any, hint: Any) -> Any:
    if name in _NESTED:
        return _build(_NESTED[name], _mapping(name, value), place=name)
    if name == "passes":
        return tuple(_merge_pass(_list(name, row)) for row in _list(name, value))
    if hint is Style:
        if value not in list(Style):
            raise ConfigError(f"style is {value!r}; use {' or '.join(Style)}.")
        return Style(value)
    if get_origin(hint) is tuple:
        return tuple(_scalar(name, entry, get_args(hint)[0]) for entry in _list(name, value))
    return None if value is None and type(None) in get_args(hint) else _scalar(name, value, hint)


def _merge_pass(row: list[Any]) -> MergePass:
    if len(row) != 3:
        raise ConfigError(f"A merge pass is {row}; write three numbers: gap, alignment, minimum.")
    max_gap, max_misalignment, min_words = (_number("passes", entry, int) for entry in row)
    return MergePass(max_gap=max_gap, max_misalignment=max_misalignment, min_words=min_words)


def _scalar(name: str, value: Any, hint: Any) -> Any:
    wanted = next((kind for kind in (bool, int, float, str) if kind is hint or kind in get_args(hint)), str)
    if wanted in (int, float):
        return _number(name, value, wanted)
    if not isinstance(value, wanted):
        raise ConfigError(f"{name} is {value!r}; it must be {'true or false' if wanted is bool else 'a text'}.")
    return value


def _number(name: str, value: Any, kind: type[int] | type[float]) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (kind is int and value != int(value)):
        raise ConfigError(f"{name} is {value!r}; it must be a {'whole ' if kind is int else ''}number.")
    return kind(value)


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} is {value!r}; it must be a list.")
    return list(value)


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} holds {value!r}; it must be a table of names and values.")
    return value
