"""Answers with one thing wrong: a number that is none, a list too long or too short, a field that is missing, a key of
thousands of digits, an echo of the API key. What is wrong, and where, is drawn."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Place = tuple[Any, str | int]
"""A container and the name or number of one of its entries."""


def values(key: str) -> list[Any]:
    """What may stand where something else should. `key` is echoed, alone and beyond where messages are cut."""
    return [
        None, True, "", "x", [], {}, [[]], [None], -1, 0, 1.5, 10**400, -(10**400), 2**31, 2**63, float("nan"),
        float("inf"), -float("inf"), 1e308, "9" * 5000, "\ud800", "\x1b[2J", key, f"{'x' * 290}{key}", [key],
        {key: key},
    ]  # fmt: skip


def spoiled(content: bytes, rng: random.Random, key: str) -> tuple[str, bytes]:
    """What was done, and the answer with that done to it."""
    answer = copy.deepcopy(json.loads(content))
    holder = [answer]
    container, name = rng.choice(list(_places(holder)))
    what, change = rng.choice(list(_CHANGES.items()))
    change(container, name, rng, key)
    return f"{what} at {name!r}", json.dumps(holder[0]).encode()


def _places(container: Any) -> Iterator[Place]:
    entries = container.items() if isinstance(container, dict) else enumerate(container)
    for name, value in entries:
        yield container, name
        if isinstance(value, dict | list):
            yield from _places(value)


def _replace(container: Any, name: Any, rng: random.Random, key: str) -> None:
    container[name] = rng.choice(values(key))


def _remove(container: Any, name: Any, rng: random.Random, key: str) -> None:
    container[name] = None if isinstance(container, list) and len(container) == 1 else container[name]
    if len(container) > 1:
        del container[name]


def _repeat(container: Any, name: Any, rng: random.Random, key: str) -> None:
    """Off by one: a list has an entry twice, a mapping one more."""
    if isinstance(container, list):
        container.insert(name, container[name])
    else:
        container[f"{name}2"] = container[name]


def _rename(container: Any, name: Any, rng: random.Random, key: str) -> None:
    if isinstance(container, dict):
        names = ["9" * 5000, f"token_id:{'9' * 5000}", "token_id:-1", "token_id:²", "²", key]
        container[rng.choice(names)] = container.pop(name)


_CHANGES: dict[str, Callable[[Any, Any, random.Random, str], None]] = {
    "replaced": _replace,
    "removed": _remove,
    "repeated": _repeat,
    "renamed": _rename,
}
