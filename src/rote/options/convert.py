"""Values of options, from Python, YAML or the command line, as their fields' types; or one sentence."""

import dataclasses
import math
import numbers
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rote.errors import ConfigError
from rote.options.declare import Option, options_of

LARGEST_WHOLE = 2**63 - 1
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_ABSENT = ("none", "auto")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100
_SHORT.maxlevel = 3


def settle(config: Any) -> None:
    """Give every field of a frozen dataclass, being made, its declared type; a ConfigError names what does not fit."""
    for name, option in options_of(config.__class__).items():
        value = getattr(config, name)
        settled = value if value is option.default else convert(option, value)
        if settled is not value:
            object.__setattr__(config, name, settled)


class Settled:
    """Options that are settled when they are made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        settle(self)


def build(home: Any, values: Mapping[str, Any], *, place: str) -> Any:
    """The dataclass with these values; unknown and missing names are errors."""
    known = options_of(home)
    require_known(values, known, place=place)
    for name, option in known.items():
        if option.is_required and values.get(name) in (None, (), [], ""):
            advice = "name it after the command" if option.spec.positional else f"give --{option.label}"
            raise ConfigError(f"{option.label} is missing; {advice}.")
    return home(**values)


def require_known(names: Iterable[str], known: Iterable[str], *, place: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else "See --help for the names."
            raise ConfigError(f"{place} has the unknown option {shown(name, plain=True)}. {hint}")


def convert(option: Option, value: Any) -> Any:
    """The value as the option's type, within its bounds."""
    kind = option.kind
    if kind.is_optional and _is_absent(option, value):
        return None
    if not kind.is_list:
        return _checked(option, value)
    entries = tuple(_checked(option, entry) for entry in _entries(option, value))
    return tuple(value) if entries == value else entries


def _is_absent(option: Option, value: Any) -> bool:
    is_number = option.kind.base in (int, float)
    return value is None or (is_number and isinstance(value, str) and value.lower() in _ABSENT)


def _entries(option: Option, value: Any) -> list[Any]:
    is_text = isinstance(value, str | os.PathLike)
    if not is_text and (isinstance(value, Mapping | bytes) or not isinstance(value, Iterable)):
        raise ConfigError(f"{option.label} is {shown(value)}; it must be a list.")
    given = [value] if is_text else list(value)
    if not option.spec.commas:
        return given
    # A path may hold commas; words, numbers and policies do not.
    parts = [entry.split(",") if isinstance(entry, str) else [entry] for entry in given]
    flat = [entry.strip() if isinstance(entry, str) else entry for part in parts for entry in part]
    return [entry for entry in flat if entry != ""]


def _checked(option: Option, value: Any) -> Any:
    single = _single(option, value)
    if isinstance(single, bool) or not isinstance(single, int | float):
        return single
    if not option.spec.admits(single):
        advice = f" {option.spec.advice}" if option.spec.advice else ""
        raise ConfigError(f"{_is(option)} {shown(single)}; it must be {option.spec.bounds_words}.{advice}")
    if isinstance(single, int):
        if abs(single) > LARGEST_WHOLE:
            raise ConfigError(f"{_is(option)} {shown(single)}; it must be below 2⁶³.")
    elif not math.isfinite(single):
        raise ConfigError(f"{_is(option)} {single}; it must be a finite number.")
    return single


def _single(option: Option, value: Any) -> Any:
    kind = option.kind
    if kind.choices:
        if not isinstance(value, str) or value not in kind.choices:
            raise ConfigError(f"{_is(option)} {shown(value)}; choose {', '.join(kind.choices)}.")
        return value if isinstance(value, kind.base) else kind.base(value)
    if kind.is_record:
        return _record(option, value)
    try:
        plain = _BY_TYPE[kind.base](value)
        # Here and nowhere else: whoever gets the value gets the file that was meant.
        return kind.base(os.path.expanduser(plain)) if option.spec.is_path or kind.base is Path else plain
    except (TypeError, ValueError, OverflowError) as error:
        if value == "" and kind.base in (str, Path):
            words = "holds an empty text; leave it out" if kind.is_list else "is empty; give a value or leave it out"
            raise ConfigError(f"{option.label} {words}.") from error
        raise ConfigError(f"{_is(option)} {shown(value)}; it must be {_WORDS[kind.base]}.") from error


def _record(option: Option, value: Any) -> Any:
    """A dataclass from a table of its fields, from its values in order, or from those as a text with commas."""
    home = option.kind.base
    if isinstance(value, home):
        return value
    if isinstance(value, Mapping):
        return build(home, value, place=option.name)
    count = len(dataclasses.fields(home))
    entries = value.split(",") if isinstance(value, str) else value
    if not option.kind.is_list or not isinstance(entries, list | tuple) or len(entries) != count:
        words = f"{count} values: {option.kind.metavar}" if option.kind.is_list else "a table of names and values"
        raise ConfigError(f"{_is(option)} {shown(value)}; it must be {words}.")
    return home(*entries)


def _is(option: Option) -> str:
    return f"{option.label} {'holds' if option.kind.is_list else 'is'}"


def _truth(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return int(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not float(value).is_integer():
        raise ValueError(value)
    return int(float(value))


def _number(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real | str)
        or (isinstance(value, str) and "_" in value)
    ):
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    text = os.fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(value)
    return text


_BY_TYPE: dict[Any, Any] = {
    bool: _truth,
    int: _whole,
    float: _number,
    str: _text,
    Path: lambda value: Path(_text(value)),
}


def shown(value: Any, *, plain: bool = False) -> str:
    """A value as an error shows it, however long or deep it is."""
    try:
        return str(value)[:100] if plain else _SHORT.repr(value)
    except ValueError:  # Python refuses to write out integers of thousands of digits.
        return f"a {type(value).__name__} of thousands of digits"
