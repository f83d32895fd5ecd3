"""What a run was made with. Results of one configuration, model and text are never mixed with those of another."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rote.errors import RunError
from rote.store.atomic import plain_json, write_json

FORMAT_KEY = "rote_run"
FORMAT = 1
DIFFERENCES_SHOWN = 8
VALUE_CHARACTERS_SHOWN = 80
ABSENT = object()


def write_identity(path: Path, identity: Mapping[str, Any]) -> None:
    write_json(path, {FORMAT_KEY: FORMAT, "identity": identity})


def read_identity(path: Path) -> dict[str, Any] | None:
    """The identity stored at `path`, or None when there is none of ours."""
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError:
        return None
    if not isinstance(stored, dict) or FORMAT_KEY not in stored:
        return None
    if stored[FORMAT_KEY] != FORMAT:
        raise RunError(
            f"{path.parent} was made by a rote with another run format ({stored[FORMAT_KEY]}, here {FORMAT}); "
            "choose another folder with --out."
        )
    identity: dict[str, Any] = stored["identity"]
    return identity


def require_same_identity(folder: Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise a RunError that names every difference (the first few with both values) unless there is none."""
    found = list(differences(stored, now))
    if not found:
        return
    shown = "; ".join(found[:DIFFERENCES_SHOWN])
    more = f"; and {len(found) - DIFFERENCES_SHOWN} more" if len(found) > DIFFERENCES_SHOWN else ""
    raise RunError(
        f"{folder} holds a run made with something else: {shown}{more}. "
        "Choose another folder with --out, or start over with --fresh."
    )


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """`config.top_k: 40 in the run, 20 now` for every entry that differs, compared as JSON would store them."""
    before, after = dict(_leaves(plain_json(stored))), dict(_leaves(plain_json(now)))
    for key in before | after:
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        if old != new:
            yield f"{'.'.join(key)}: {_shown(old)} in the run, {_shown(new)} now"


def _leaves(value: Any, key: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    # An empty mapping is a leaf: it must not look the same as an absent one.
    if isinstance(value, dict) and (value or not key):
        for name, entry in value.items():
            yield from _leaves(entry, (*key, name))
    else:
        yield key, value


def _shown(value: object) -> str:
    if value is ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS_SHOWN else text[:VALUE_CHARACTERS_SHOWN] + "…"
