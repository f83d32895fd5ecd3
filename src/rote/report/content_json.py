"""Content for machines: what a terminal says in words, and the numbers behind it."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rote.report.content import Content
from rote.report.words import THIN_SPACE


def contents_json(contents: Sequence[Content]) -> str:
    """A list with one entry a run. What is undefined is null.

    All of it is ASCII: standard output may have any encoding, and lead to a terminal that acts on U+0080 to U+009F.
    """
    text = json.dumps([_plain(_entry(content)) for content in contents], indent=2, ensure_ascii=True, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _entry(content: Content) -> dict[str, Any]:
    return {
        "kind": content.kind,
        "label": content.label,
        "headline": content.headline,
        "date": content.date,
        "notices": content.notices,
        "facts": dict(content.facts),
        "tables": {
            table.name: [dict(zip(table.heads, row, strict=True)) for row in table.rows] for table in content.tables
        },
        "sentences": content.sentences,
        "numbers": content.numbers,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return value.replace(THIN_SPACE, ",")
    return None if isinstance(value, float) and not math.isfinite(value) else value
