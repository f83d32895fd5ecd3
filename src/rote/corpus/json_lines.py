"""JSON Lines: one object a line, numbered as an editor numbers them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rote.corpus.plain import read_plain_lines
from rote.errors import TextError
from rote.files import parse_json


class JsonLine(NamedTuple):
    """An object of a file, and the words that name its place."""

    number: int
    place: str
    fields: dict[str, Any]


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """The objects of a file in its order; empty lines are passed over, anything else is refused with its line."""
    for number, line in enumerate(read_plain_lines(path), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            fields = parse_json(line)
        except ValueError as error:
            raise TextError(f"{place}: not JSON ({error}); write one object a line.") from error
        if not isinstance(fields, dict):
            raise TextError(f"{place}: not a JSON object; write one object a line.")
        if "\\u" in line:
            _refuse_halves(fields, place)
        yield JsonLine(number, place, fields)


def _refuse_halves(fields: dict[str, Any], place: str) -> None:
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(f"{place}: half of a surrogate pair, which no UTF-8 text can hold; fix it.") from error
