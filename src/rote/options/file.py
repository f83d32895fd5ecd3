"""Configuration files: YAML (or JSON) with the names of options.

Scalars stay text until the option's type reads them, as on the command line: a revision `0123` is not an octal number
and `stop_rule: off` is not false. Aliases, tags, names given twice and deep nesting have no use here and are refused.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rote.errors import ConfigError
from rote.files import read_bytes
from rote.options.convert import require_known, shown
from rote.options.declare import options_of

LARGEST_BYTES = 100_000
DEEPEST = 8
_NULL = ("", "~", "null", "Null", "NULL")


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
    import yaml

    try:
        return _Builder(path).build(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        first_line = str(error).splitlines()[0]
        raise ConfigError(f"the configuration {path} is not valid YAML: {first_line}.") from error


class _Builder:
    """Lists, dictionaries and texts from the parser's events, without recursion."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[Any] = []
        self._keys: list[str | None] = []
        self._documents: list[Any] = []

    def build(self, events: Iterable[Any]) -> Any:
        for event in events:
            self._take(event, type(event).__name__)
        if len(self._documents) > 1:
            self._refuse("holds several documents; leave one")
        return self._documents[0] if self._documents else {}

    def _take(self, event: Any, name: str) -> None:
        if name == "AliasEvent":
            self._refuse(f"uses the alias *{event.anchor}; write the values out")
        if getattr(event, "tag", None) not in (None, "!"):
            self._refuse(f"uses the tag {shown(event.tag)}; leave it out")
        if name == "ScalarEvent":
            is_plain = event.style is None
            self._add(None if is_plain and event.value in _NULL else event.value)
        elif name in ("SequenceStartEvent", "MappingStartEvent"):
            self._open.append([] if name == "SequenceStartEvent" else {})
            self._keys.append(None)
            if len(self._open) > DEEPEST:
                self._refuse(f"is nested more than {DEEPEST} levels deep; options need less")
        elif name in ("SequenceEndEvent", "MappingEndEvent"):
            self._keys.pop()
            self._add(self._open.pop())

    def _add(self, value: Any) -> None:
        if not self._open:
            self._documents.append({} if value is None else value)
        elif isinstance(self._open[-1], list):
            self._open[-1].append(value)
        elif self._keys[-1] is None:
            self._add_key(value)
        else:
            self._open[-1][self._keys[-1]] = value
            self._keys[-1] = None

    def _add_key(self, value: Any) -> None:
        if not isinstance(value, str):
            self._refuse(f"has {shown(value)} where an option's name should be")
        if value in self._open[-1]:
            self._refuse(f"gives {shown(value, plain=True)} twice; leave one")
        self._keys[-1] = value

    def _refuse(self, words: str) -> None:
        raise ConfigError(f"the configuration {self._path} {words}.")
