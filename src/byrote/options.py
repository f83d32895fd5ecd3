"""Options as fields of dataclasses: one declaration makes the flag, the YAML key, the Python keyword and the checks.

The type of a field decides what fits; everything else about an option is the `Spec` in its metadata.
"""

import dataclasses
import difflib
import inspect
import math
import numbers
import os
import re
import reprlib
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from byrote.errors import ConfigError
from byrote.files import read_bytes
from byrote.types import BosRule, DtypeName

Documented = TypeVar("Documented")
OPTIONS_HEAD = "Options:"
"""Begins the last part of a docstring that lists options."""

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
    """What is declared about a field beside its type. Bounds hold for every entry of a list."""

    help: str = ""
    group: GroupName = "output"
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    advice: str = ""
    """A sentence after the error of a value out of bounds."""
    choices: Callable[[], Iterable[str]] | None = None
    """The words that a text may be, where they are not known to its type."""
    commas: bool = False
    """A list is written as one word with commas; otherwise the flag is repeated."""
    positional: bool = False
    is_flag: bool = True
    """Otherwise it is set in YAML files, in Python, and with `--set NAME=VALUE`."""
    is_path: bool = False
    """A text that names a file or folder of the user's, as every Path does: a leading ~ is the home folder."""
    is_common: bool = False
    """Whether `--help` shows it where a command has many options; `--help-all` shows all."""
    aliases: tuple[str, ...] = ()
    """Flags of other tools for the same thing."""
    names: str | None = None
    """The flag where it is not the field's name: `--fresh/--resume`."""
    default_words: str | None = None
    """The default in words, for `--help`, where the value itself explains too little."""
    in_identity: bool = True
    """Whether it decides a run's numbers: runs that differ in it are different runs."""
    cuts_windows: bool = False
    """Whether it decides which windows there are."""
    measure: str | None = None
    """The measure without which it has no effect."""
    needs_weights: bool = False
    """Whether it is about weights, which a server does not give away."""
    needs_folder: bool = False
    """Whether it is about a run in a folder, and not about windows measured in memory."""

    @property
    def bounds_words(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least:g} and {self.at_most:g}"
        least = "{:g} or more" if self.at_least is not None and self.at_least <= 0 else "at least {:g}"
        low = ((least, self.at_least), ("above {:g}", self.above))
        high = (("at most {:g}", self.at_most), ("below {:g}", self.below))
        return " and ".join(words.format(bound) for words, bound in (*low, *high) if bound is not None)

    def admits(self, value: float) -> bool:
        """NaN is never admitted by a bound."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True, slots=True)
class ValueKind:
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
        if self.is_record:
            return ",".join(item.name.upper() for item in dataclasses.fields(self.base))
        return _METAVARS[self.base]


@dataclass(frozen=True, slots=True)
class Option:
    """One field with all that is known about it. `owner` is the field that holds its dataclass, if there is one."""

    name: str
    kind: ValueKind
    default: Any
    spec: Spec
    owner: str | None = None

    @property
    def label(self) -> str:
        """The name as users write it: of a flag with hyphens, in `--set` and in files as it is."""
        return self.name.replace("_", "-") if self.spec.is_flag else self.name

    @property
    def choices(self) -> tuple[str, ...]:
        return self.kind.choices if self.spec.choices is None else tuple(self.spec.choices())

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
        metavar = f"[{'|'.join(self.choices)}]" if self.choices else self.kind.metavar
        return f"{metavar},..." if self.spec.commas else metavar

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
        is_word = self.kind.base in (str, Path) and not self.choices
        if self.default is None or self.default == "":
            return "" if is_word else "default: none"
        if self.kind.base is bool:
            return f"default: {'on' if self.default else 'off'}"
        return f"default: {self.default}"


def option(default: Any, help: str, *, group: GroupName = "output", **details: Any) -> Any:
    """A field with its default, its explanation, and the bounds and spellings of `Spec`."""
    return field(default=default, metadata={"option": Spec(help=help, group=group, **details)})


def required(help: str, *, group: GroupName = "output", **details: Any) -> Any:
    """A field that must be given."""
    return field(metadata={"option": Spec(help=help, group=group, **details)})


def like(home: type, name: str, **changes: Any) -> Any:
    """The field of another dataclass again: same default and words, but for the changes."""
    original: Field[Any] = next(item for item in dataclasses.fields(home) if item.name == name)
    default = changes.pop("default", original.default)
    return field(default=default, metadata={"option": dataclasses.replace(original.metadata["option"], **changes)})


_MOST_COLUMNS = 116


def with_options(*homes: type) -> Callable[[Documented], Documented]:
    """Append the options of dataclasses to a docstring, for `help`."""

    def append(described: Documented) -> Documented:
        lines = [
            textwrap.fill(f"{each.name}: {each.help}", _MOST_COLUMNS, initial_indent="    ", subsequent_indent=" " * 8)
            for home in homes
            for each in settable_of(home)
        ]
        described.__doc__ = "\n\n".join([inspect.getdoc(described) or "", OPTIONS_HEAD, "\n".join(lines)])
        return described

    return append


def kind_of(hint: Any) -> ValueKind:
    """The kind a type stands for: `int | None`, `Literal[...]`, `tuple[str, ...]`, a StrEnum, a dataclass."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return dataclasses.replace(kind_of(arguments[0]), is_list=True)
    if origin is Literal:
        return ValueKind(str, choices=tuple(arguments))
    if origin in (types.UnionType, Union):
        parts = [kind_of(part) for part in arguments if part is not type(None)]
        choices = tuple(choice for part in parts for choice in part.choices)
        return dataclasses.replace(parts[0], choices=choices, is_optional=type(None) in arguments)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return ValueKind(hint, choices=tuple(map(str, hint)))
    return ValueKind(hint)


def options_of(home: type) -> Mapping[str, Option]:
    """Every field of a dataclass by name, those that are not set by users among them."""
    return _read_options(home)


@cache
def _read_options(home: Any) -> Mapping[str, Option]:
    hints, found = get_type_hints(home), {}
    for item in dataclasses.fields(home):
        default = item.default if item.default_factory is MISSING else item.default_factory()
        spec = item.metadata.get("option", Spec())
        found[item.name] = Option(item.name, kind_of(hints[item.name]), default, spec)
    return found


@cache
def settable_of(home: type) -> tuple[Option, ...]:
    """The options that users set. A field that holds a dataclass of options stands for those of that dataclass."""
    found: list[Option] = []
    for entry in options_of(home).values():
        if not entry.spec.help:
            continue
        if entry.kind.is_record and not entry.kind.is_list:
            found += [dataclasses.replace(inner, owner=entry.name) for inner in settable_of(entry.kind.base)]
        else:
            found.append(entry)
    return tuple(found)


def flags_of(home: type) -> tuple[Option, ...]:
    """The options that are flags."""
    return tuple(entry for entry in settable_of(home) if entry.spec.is_flag)


def gather(homes: tuple[type, ...], given: Mapping[str, Any], *files: Path | None) -> list[Any]:
    """The dataclasses with their defaults, then the files in order, then the options that were given (not None)."""
    merged: dict[str, Any] = {}
    for file in files:
        for name, value in ({} if file is None else read_config_file(file.expanduser(), *homes)).items():
            earlier = merged.get(name)
            merged[name] = earlier | value if isinstance(earlier, dict) and isinstance(value, dict) else value
    made = []
    for home in homes:
        values = {name: value for name, value in merged.items() if name in options_of(home)}
        for option in settable_of(home):
            value = given.get(option.name)
            if value is not None and option.owner is not None:
                values[option.owner] = dict(values.get(option.owner, {})) | {option.name: value}
            elif value is not None:
                values[option.name] = value
        made.append(build(home, values, place=str(files[-1]) if files else "the command"))
    return made


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


NO_REMOTE_CODE = (
    "trust-remote-code is no option of byrote: code that comes with a model could change what is measured, and run "
    "anything else. Use a model whose architecture transformers knows by itself, or load it in your own Python and "
    "give the object to byrote.load_model."
)


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
        if name == "trust_remote_code":
            raise ConfigError(NO_REMOTE_CODE)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else "See --help for the names."
            raise ConfigError(f"{place} has the unknown option {shown(name, plain=True)}. {hint}")


def convert(option: Option, value: Any) -> Any:
    """The value as the option's type, within its bounds."""
    kind = option.kind
    is_absent_word = kind.base in (int, float) and isinstance(value, str) and value.lower() in _ABSENT
    if kind.is_optional and (value is None or is_absent_word):
        return None
    if not kind.is_list:
        return _checked(option, value)
    return tuple(_checked(option, entry) for entry in _entries(option, value))


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
    if choices := option.choices:
        if not isinstance(value, str) or value not in choices:
            raise ConfigError(f"{_is(option)} {shown(value)}; choose {', '.join(choices)}.")
        return value if isinstance(value, kind.base) else kind.base(value)
    if kind.is_record:
        return _record(option, value)
    try:
        plain = _BY_TYPE[kind.base](value)
        # Expanded here and nowhere else.
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
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or (not isinstance(value, numbers.Integral) and not float(value).is_integer()):
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, str) or "_" in value):
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


LARGEST_BYTES = 100_000
DEEPEST = 8
_NULL = ("", "~", "null", "Null", "NULL")
_PLAIN_TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


def read_config_file(path: Path, *homes: type) -> dict[str, Any]:
    """Values by option name for these dataclasses, not yet converted; unknown names are errors."""
    loaded = _load(path, _read(path))
    if not isinstance(loaded, dict):
        raise ConfigError(f"the configuration {path} must be a mapping of option names to values.")
    known = {name: option for home in homes for name, option in options_of(home).items()}
    values = {name.replace("-", "_"): value for name, value in loaded.items()}
    require_known(values, known, place=str(path))
    # An empty table gives no option of it; an empty value elsewhere is a value, and perhaps a wrong one.
    return {name: value for name, value in values.items() if value is not None or not known[name].kind.is_record}


def profile_path(name: str, folder: Path) -> Path:
    """The file of a profile; a ConfigError lists the names there are."""
    names = profile_names(folder)
    if name not in names:
        raise ConfigError(f"profile is {name!r}; use one of {', '.join(names)}, or a file of your own with --config.")
    return folder / f"{name}.yaml"


def profile_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.iterdir() if path.suffix == ".yaml")


def _read(path: Path) -> str:
    try:
        content = read_bytes(path, most=LARGEST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration {path} cannot be read: it is not UTF-8 text.") from error
    if len(content) > LARGEST_BYTES:
        raise ConfigError(f"the configuration {path} is larger than {LARGEST_BYTES:,} bytes; options need less.")
    return text


def _load(path: Path, text: str) -> Any:
    """Lists, dictionaries and texts; of what YAML can do beyond them, everything is refused."""
    import yaml

    def refuse(words: str) -> NoReturn:
        raise ConfigError(f"the configuration {path} {words}.")

    def value_of(node: yaml.Node) -> Any:
        if node.tag not in _PLAIN_TAGS:
            refuse(f"uses the tag {shown(node.tag)}; leave it out")
        if isinstance(node, yaml.ScalarNode):
            return None if node.style is None and node.value in _NULL else node.value
        if isinstance(node, yaml.SequenceNode):
            return [value_of(entry) for entry in node.value]
        values: dict[str, Any] = {}
        for key, entry in node.value:
            name = value_of(key)
            if not isinstance(name, str):
                refuse(f"has {shown(name)} where an option's name should be")
            if name in values:
                refuse(f"gives {shown(name, plain=True)} twice; leave one")
            values[name] = value_of(entry)
        return values

    try:
        depth = documents = 0
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            if isinstance(event, yaml.AliasEvent):
                refuse(f"uses the alias *{event.anchor}; write the values out")
            documents += isinstance(event, yaml.DocumentStartEvent)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                refuse(f"is nested more than {DEEPEST} levels deep; options need less")
        if documents > 1:
            refuse("holds several documents; leave one")
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        return {} if node is None else value_of(node)
    except yaml.YAMLError as error:
        refuse(f"is not valid YAML: {str(error).splitlines()[0]}")


@dataclass(frozen=True, kw_only=True)
class Common:
    """What is measured, under which policy, on which machine: a scan has all of these options."""

    model: str = option(
        "", "Model folder or hub id.", group="text", default_words="", is_common=True, in_identity=False
    )
    revision: str | None = option(None, "Revision of a hub model.", group="text", needs_weights=True)
    adapter: str | None = option(
        None, "Folder of a PEFT adapter, merged into the model before anything is measured.", group="text",
        is_path=True, in_identity=False, needs_weights=True,
    )  # fmt: skip
    text: tuple[str, ...] = option(
        (),
        "Target texts: files, folders, globs, URLs (.txt .md .jsonl .parquet), saved datasets; several may follow.",
        group="text",
        is_common=True,
        in_identity=False,
    )
    control: tuple[str, ...] = option(
        (), "Control texts the model cannot have seen, like --text.", group="text", in_identity=False, is_common=True
    )
    out: str = option(
        "", "Run folder to write; an unfinished one is resumed.", group="output", is_path=True, in_identity=False,
        is_common=True, aliases=("--output-path",),
    )  # fmt: skip
    prefix_tokens: int = option(
        50, "Tokens given to the model before each suffix.", group="text", at_least=1, cuts_windows=True
    )
    suffix_tokens: int = option(
        50, "Tokens the model would have to reproduce.", group="text", at_least=1, cuts_windows=True
    )
    stride_chars: int = option(
        20, "Start a window every this many characters.", group="text", at_least=1, cuts_windows=True, is_common=True
    )
    whole_documents: bool = option(
        False, "One window per document: its first tokens. Replaces --stride-chars.", group="text", cuts_windows=True
    )
    limit: int | None = option(
        None, "Measure only N windows: the first of every document, targets and controls alike.", group="text",
        at_least=1, default_words="all", cuts_windows=True,
    )  # fmt: skip
    sample: int | None = option(
        None, "Measure a seeded random sample of N windows, drawn from every document, targets and controls alike.",
        group="text", at_least=1, default_words="all", cuts_windows=True, is_common=True,
    )  # fmt: skip
    seed: int = option(0, "Seed of everything that is drawn.", group="estimates", at_least=0, is_common=True)
    bos: BosRule = option(
        "auto", "Beginning-of-text token, counted inside the prefix; auto does as the tokenizer.", group="text",
        cuts_windows=True,
    )  # fmt: skip
    temperature: float = option(
        1.0, "Temperature of the decoding policy.", group="policy", above=0,
        advice="For greedy decoding use --top-k 1.",
    )  # fmt: skip
    top_k: int | None = option(
        40, "Keep the k most likely tokens; none keeps all.", group="policy", at_least=1, is_common=True,
        advice="Write none for no truncation.",
    )  # fmt: skip
    top_p: float | None = option(
        None, "Keep the smallest set of tokens whose mass reaches this (nucleus).", group="policy", above=0, at_most=1
    )
    device: str = option(
        "auto", "auto, cpu, cuda, cuda:N, or map to spread a model over devices.", group="machine", in_identity=False,
        is_common=True,
    )  # fmt: skip
    dtype: DtypeName = option("auto", "Number format of the weights.", group="machine")
    batch_windows: int | None = option(
        None, "Windows per forward of the first pass.", group="machine", at_least=1, in_identity=False, is_common=True,
        aliases=("--batch-size",), default_words="by the device",
    )  # fmt: skip
    key_variable: str | None = option(
        None, "Environment variable that holds the server's key, such as OPENAI_API_KEY; the key is never written.",
        group="endpoint", default_words="no key is sent", in_identity=False,
    )  # fmt: skip
    key_over_http: bool = option(
        False, "Send the key over plain http to another machine too.", group="endpoint", is_flag=False,
        in_identity=False,
    )  # fmt: skip
    requests_per_minute: float | None = option(
        None, "Begin no more requests a minute than this.", group="endpoint", above=0, default_words="no limit",
        in_identity=False,
    )  # fmt: skip
    attempts: int = option(6, "Attempts at one request.", group="endpoint", at_least=1, in_identity=False)
    timeout_seconds: float = option(
        300.0, "Deadline of one request, from connecting to the last byte.", group="endpoint", above=0,
        in_identity=False,
    )  # fmt: skip
    max_tokens_total: int | None = option(
        None, "Ceiling in tokens, prompts included.", group="budget", at_least=0, in_identity=False
    )
    max_requests: int | None = option(
        None, "Ceiling in requests, failed ones included.", group="budget", at_least=0, in_identity=False
    )
