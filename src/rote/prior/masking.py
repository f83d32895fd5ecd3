"""Personal data made unreadable where examples are printed: one sees what kind of thing stands there, not what."""

import re

from rote.corpus.spans import PATTERNS, SpanKind

MASK = "•"
_DIGIT = re.compile(r"\d")
_INNER = re.compile(r"(?<=[^\W\d_])[^\W\d_]")
# A window may begin or end inside an address, where the whole pattern no longer fits.
_PIECE_OF_ADDRESS = re.compile(r"[\w.+-]*@[\w.-]*|\w+(?:\.\w+)+\S*$")


def mask_whole(text: str) -> str:
    """First letters, punctuation and lengths stay: `F•••••• H•••`, `•••-•••-••••`."""
    return _INNER.sub(MASK, _DIGIT.sub(MASK, text))


def mask_identifiers(text: str, *, before: str = "") -> str:
    """Every digit, and what the patterns for identifiers find in `before` + `text`; other words stay readable."""
    whole = before + text
    masked = list(whole)
    patterns = [PATTERNS[kind] for kind in SpanKind]
    for pattern in (*patterns, _PIECE_OF_ADDRESS):
        for match in pattern.finditer(whole):
            masked[match.start() : match.end()] = mask_whole(match.group())
    return _DIGIT.sub(MASK, "".join(masked[len(before) :]))


def mask_place(place: str) -> str:
    """The name of a document or record, in which people are sometimes named too; numbers tell documents apart."""
    for kind in (SpanKind.EMAIL, SpanKind.PHONE, SpanKind.NAME):
        place = PATTERNS[kind].sub(lambda match: mask_whole(match.group()), place)
    return place
