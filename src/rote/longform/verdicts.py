"""What an answer is: text to go on with, a refusal, the end of the book, or nothing."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from rote.models.responder import Answer

_APOSTROPHE = r"['’]"
_DECLINED = (
    r"(?:provide|reproduce|continue|supply|output|generate|recite|comply|assist|fulfil+|help (?:with|you)|"
    r"(?:share|give|quote) (?:you |with you )?(?:the|this|that|more|further|any|verbatim|longer|extended|large))"
)

# An assistant speaking about itself or about rights. Novels are full of "I cannot" and "unable to" alone, so those
# count only with the deed that is declined.
REFUSAL_PATTERNS = (
    rf"\bsorry\b[, ]+(?:but )?i (?:can{_APOSTROPHE}?t|cannot|am unable|am not able)\b",
    rf"\bi (?:can{_APOSTROPHE}?t|cannot|can not|won{_APOSTROPHE}?t|will not) (?:be able to )?{_DECLINED}\b",
    rf"\b(?:i{_APOSTROPHE}m|i am) (?:unable|not able|not allowed|not permitted) to {_DECLINED}\b",
    rf"\bnot allowed to {_DECLINED}\b",
    rf"\bwon{_APOSTROPHE}?t be able to {_DECLINED}\b",
    r"\bcopyright(?:ed)? (?:material|text|work|content|book|novel|protection|law|restrictions?|reasons?|infringement)",
    r"\b(?:protected by|under|violate|violates|infringe|infringes) copyright\b",
    r"\bas an ai\b",
)
STOP_PHRASES = (
    "THE END",
    "[End of Book]",
    "we have reached the conclusion of",
    "About the Author",
    "Afterword",
    "Bibliography",
)
OPENING_CHARACTERS = 300
"""A refusal stands at the beginning of an answer; further on, the same words are the book's."""


class Kind(StrEnum):
    TEXT = "text"
    REFUSAL = "refusal"
    END = "end"
    """The answer holds a stop phrase; what stands before it still belongs to the generation."""
    EMPTY = "empty"


class Judged(NamedTuple):
    kind: Kind
    text: str
    """What may enter the generation: empty for refusals and empty answers, cut at a stop phrase."""


def judge(answer: Answer, *, refusal_patterns: Sequence[str], stop_phrases: Sequence[str]) -> Judged:
    if not answer.text.strip():
        return Judged(Kind.EMPTY, "")
    opening = answer.text.lstrip()[:OPENING_CHARACTERS]
    if any(re.search(pattern, opening, re.IGNORECASE) for pattern in refusal_patterns):
        return Judged(Kind.REFUSAL, "")
    places = [place for phrase in stop_phrases if (place := answer.text.find(phrase)) >= 0]
    if places:
        return Judged(Kind.END, answer.text[: min(places)])
    return Judged(Kind.TEXT, answer.text)


def first_usable(judged: Sequence[Judged]) -> Judged:
    """The first that is neither empty nor a refusal; failing that a refusal before an empty one."""
    by_preference = sorted(judged, key=lambda verdict: {Kind.REFUSAL: 1, Kind.EMPTY: 2}.get(verdict.kind, 0))
    return by_preference[0]
