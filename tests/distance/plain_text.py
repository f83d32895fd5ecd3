"""The rules of the text measure in plain Python: the judge of the tensors."""

import codecs
import unicodedata
from collections.abc import Sequence

from tests.oracle import textbook_edit_row

SINGLE, DOUBLE, DASHES = "‘’‚‛ʼ′‹›`´", "“”„‟«»″〝〞〟", "‐‑‒–—―−⸺⸻﹘"
NO_WIDTH = "\u00ad\u200b\u200c\u200d\u2060\ufeff"


def plain_normal_form(text: str) -> str:
    out = ""
    for character in text:
        for part in " " if character.isspace() else unicodedata.normalize("NFD", character):
            one = "'" if part in SINGLE else '"' if part in DOUBLE else "-" if part in DASHES else part
            for new in "" if one in NO_WIDTH else "..." if one == "…" else one:
                is_repeated = new in " -" and out.endswith(new)
                if not is_repeated and (out or new != " "):
                    out += new
    return out


def text_of(pieces: Sequence[bytes | None], ids: Sequence[int]) -> str:
    """Without a character that the last token leaves incomplete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(b"".join(pieces[token] or b"" for token in ids))
    pending, _ = decoder.getstate()
    # A surrogate is broken with its second byte; Python's decoder waits for its end.
    return text + (decoder.decode(b"", True) if pending[:1] == b"\xed" and pending[1:] >= b"\xa0" else "")


def characters_of(pieces: Sequence[bytes | None], ids: Sequence[int], target: str) -> str:
    """What of the answer is compared with a normalised target."""
    return plain_normal_form(text_of(pieces, ids))[: len(target)]


def is_complete(pieces: Sequence[bytes | None], ids: Sequence[int], target: str) -> bool:
    return len(characters_of(pieces, ids, target)) == len(target)


def distance_if_ended(pieces: Sequence[bytes | None], ids: Sequence[int], target: str) -> int:
    return edit_row(characters_of(pieces, ids, target), target)[-1]


def least_distance(pieces: Sequence[bytes | None], ids: Sequence[int], target: str) -> int:
    """Of an answer that begins so; of a complete one, its distance."""
    answer = characters_of(pieces, ids, target)
    row = edit_row(answer, target)
    if len(answer) == len(target):
        return row[-1]
    return min(distance + max(0, len(answer) - column) for column, distance in enumerate(row))


def edit_row(answer: str, target: str) -> list[int]:
    return textbook_edit_row([ord(one) for one in answer], [ord(one) for one in target])
