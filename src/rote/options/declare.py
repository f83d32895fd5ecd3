"""Options as fields of dataclasses: what a field says about itself, read from its type and nothing else."""

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

GroupName = Literal[
    "text",
    "policy",
    "search",
    "screen",
    "estimates",
    "membership",
    "prior",
    "audit",
    "endpoint",
    "budget",
    "output",
    "machine",
]
"""Sections of `--help`, in the order in which they are shown."""

_METAVARS = {bool: "BOOLEAN", int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a field's type cannot say. Bounds hold for every entry of a list."""

    help: str = ""
    group: GroupName = "output"
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    advice: str = ""
    """A sentence after the error of a value out of bounds."""
    commas: bool = False
    """A list is written as one word with commas; otherwise the flag is repeated."""
    positional: bool = False
    is_path: bool = False
    """A text that names a file or folder of the user's, as every Path does: a leading ~ is the home folder."""
    names: str | None = None
    """The flag where it is not the field's name: `--fresh/--resume`."""
    default_words: str | None = None
    """What `--help` says about the default where the value itself says too little."""

    @property
    def bounds_words(self) -> str:
        low = "" if self.above is None else f"above {self.above:g}"
        if self.at_least is not None:
            if self.at_most is not None:
                return f"between {self.at_least:g} and {self.at_most:g}"
            low = f"{self.at_least:g} or more" if self.at_least <= 0 else f"at least {self.at_least:g}"
        high = f"below {self.below:g}" if self.below is not None else ""
        high = f"at most {self.at_most:g}" if self.at_most is not None else high
        return " and ".join(filter(None, (low, high)))

    def admits(self, value: float) -> bool:
        """NaN is never admitted by a bound."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """What a type asks of a value: a base type or one of the choices; perhaps none, perhaps several."""

    base: Any
    choices: tuple[str, ...] = ()
    is_optional: bool = False
    is_list: bool = False

    @property
    def is_record(self) -> bool:
        return dataclasses.is_dataclass(self.base)

    @property
    def metavar(self) -> str:
        if self.choices:
            return f"[{'|'.join(self.choices)}]"
        if self.is_record:
            return ",".join(item.name.upper() for item in dataclasses.fields(self.base))
        return _METAVARS[self.base]


@dataclass(frozen=True, slots=True)
class Option:
    """One field with all that is known about it. `owner` is the field that holds its dataclass, if there is one."""

    name: str
    kind: Kind
    default: Any
    spec: Spec
    owner: str | None = None

    @property
    def label(self) -> str:
        """The name as users write it."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        if self.spec.names is not None:
            return self.spec.names
        return f"--{self.label}/--no-{self.label}" if self.kind.base is bool else f"--{self.label}"

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def metavar(self) -> str:
        return f"{self.kind.metavar},..." if self.spec.commas else self.kind.metavar

    @property
    def help(self) -> str:
        return f"{self.spec.help} [{self._default_words}]" if self._default_words else self.spec.help

    @property
    def _default_words(self) -> str:
        if self.spec.default_words is not None:
            return f"default: {self.spec.default_words}" if self.spec.default_words else ""
        if self.is_required:
            return "required"
        if isinstance(self.default, tuple):
            return f"default: {(',' if self.spec.commas else ' ').join(map(str, self.default))}" if self.default else ""
        is_word = self.kind.base in (str, Path) and not self.kind.choices
        if self.default is None or self.default == "":
            return "" if is_word else "default: none"
        if self.kind.base is bool:
            return f"default: {'on' if self.default else 'off'}"
        return f"default: {self.default}"


def option(default: Any, help: str, *, group: GroupName, **details: Any) -> Any:
    """A field with its default, its explanation, and the bounds and spellings of `Spec`."""
    return field(default=default, metadata={"option": Spec(help=help, group=group, **details)})


def required(help: str, *, group: GroupName, **details: Any) -> Any:
    """A field that must be given."""
    return field(metadata={"option": Spec(help=help, group=group, **details)})


def like(home: type, name: str, **changes: Any) -> Any:
    """The field of another dataclass again: same default and words, but for the changes."""
    original: Field[Any] = next(item for item in dataclasses.fields(home) if item.name == name)
    default = changes.pop("default", original.default)
    return field(default=default, metadata={"option": dataclasses.replace(original.metadata["option"], **changes)})


def kind_of(hint: Any) -> Kind:
    """The kind a type stands for: `int | None`, `Literal[...]`, `tuple[str, ...]`, a StrEnum, a dataclass."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return dataclasses.replace(kind_of(arguments[0]), is_list=True)
    if origin is Literal:
        return Kind(str, choices=tuple(arguments))
    if origin in (types.UnionType, Union):
        parts = [kind_of(part) for part in arguments if part is not type(None)]
        choices = tuple(choice for part in parts for choice in part.choices)
        return dataclasses.replace(parts[0], choices=choices, is_optional=type(None) in arguments)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Kind(hint, choices=tuple(map(str, hint)))
    return Kind(hint)


@cache
def options_of(home: type) -> Mapping[str, Option]:
    """Every field of a dataclass by name, those that are no flags among them."""
    hints = get_type_hints(home)
    return {item.name: _option_of(item, hints[item.name]) for item in dataclasses.fields(home)}


def _option_of(item: "Field[Any]", hint: Any) -> Option:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    return Option(item.name, kind_of(hint), default, item.metadata.get("option", Spec()))


@cache
def flags_of(home: type) -> tuple[Option, ...]:
    """The options that are flags. A field that holds a dataclass of options stands for that dataclass's flags."""
    flags: list[Option] = []
    for entry in options_of(home).values():
        if not entry.spec.help:
            continue
        if entry.kind.is_record and not entry.kind.is_list:
            inner = flags_of(entry.kind.base)
            flags += [dataclasses.replace(flag, owner=entry.name) for flag in inner]
        else:
            flags.append(entry)
    return tuple(flags)
