"""What an answer is: text to go on with, a refusal, the end of the book, or nothing."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from byrote.models.responder import Answer

_CANNOT = (
    r"(?:(?:(?:ca|wo|could)n['’ʼ]?t|cannot|can not|will not)(?: be able to)?|"
    r"(?:currently |unfortunately )?(?:unable|not able|not allowed|not permitted) to)"
)
# The answer's author declines: "I", "we", or no subject at the beginning of a clause ("Sorry, can't share that").
_AUTHOR = (
    r"(?:\b(?:i|we)(?:['’ʼ](?:m|re)| am| are)? |"
    r"(?:\A|[.!?:;,—–\n])[\s\"“*_]*(?:(?:and|but|so|unfortunately|i['’ʼ]m afraid|sorry)[, ]+)?)"
)
_WORK = (
    r"(?:texts?|books?|novels?|stor(?:y|ies)|chapters?|passages?|excerpts?|pages?|paragraphs?|contents?|materials?|"
    r"works?|lyrics|quotes?|quotations?|verbatim|word[ -]for[ -]word|requests?|continuations?)"
)
_SOME_OF_IT = (
    r"(?: (?:you |with you )?(?:it|that|this|these|those|more|further|longer|extended|large|"
    rf"the (?:rest|full|whole|entire|next|exact|original|actual|complete))\b|[^.!?\n]{{0,80}}?\b{_WORK}\b)"
)
# Verbs that suffice by themselves after a request for a text, and verbs that count when a text is named with them.
_ACTION = (
    r"(?: (?:[a-z]+ly|just|also))? (?:(?:provide|reproduce|continue|supply|output|generate|recite|transcribe|comply|"
    r"assist|fulfil+|accommodate|help (?:with|you)|do (?:that|this|so)|(?:share|quote)(?=[.!?]|\Z))\b|"
    rf"(?:share|give|quote|write|offer|complete|produce|copy|repeat|display|print|post|show|discuss|help)\b{_SOME_OF_IT})"
)

# Kinds: regret, inability, permission, refusal, rules, rights, and an assistant speaking of itself. Novels are full of
# "I cannot" and "unable to" alone, so those count only with the action that is declined.
REFUSAL_PATTERNS = (
    rf"\bsorry\b[,;.— ]+(?:but )?(?:i |we )?(?:['’ʼ]?m |am |are )?{_CANNOT}\b",
    rf"{_AUTHOR}{_CANNOT}{_ACTION}",
    rf"\bnot (?:allowed|permitted) to{_ACTION}",
    rf"\b(?:i|we)(?: must| have to| need to|['’ʼ]ll have to)? decline\b[^.!?\n]{{0,80}}\b{_WORK}\b",
    r"\b(?:against|violates?|under) my (?:guidelines|polic(?:y|ies)|rules|programming)\b",
    # Not the notice on a title page: "Copyright © 1925 by …".
    r"\bcopyright(?:ed|s)?\b(?!,?\s*(?:©|\(c\)|\d{4}|by\b|in the\b|renewed|page|notice|edition|secured|office))",
    r"\bas an ai\b|\bas a (?:large )?language model\b",
)
PUBLISHED_REFUSALS = (
    r"\bsorry[ , ]*(?:but )?i can['’]t\b",
    r"\bcopyright(?:ed)?\b",
    r"\bcan['’]t provide\b",
    r"\bunable to\b",
    r"\bi cannot\b",
    r"\bwon['’]t be able to\b",
    r"\bnot allowed to\b",
    r"\bcan['’]t reproduce\b",
    r"\bcan['’]t continue\b",
    r"\bcan['’]t share\b",
)
"""The patterns of the published audits, searched for in a whole answer: a novel's own "I cannot" ends phase 2 too."""
STOP_PHRASES = (
    "THE END",
    "[End of Book]",
    "we have reached the conclusion of",
    "About the Author",
    "Afterword",
    "Bibliography",
)
OPENING_CHARACTERS = 300
"""A refusal is in the first part of an answer; further on, the same words are the book's."""


class AnswerKind(StrEnum):
    TEXT = "text"
    REFUSAL = "refusal"
    DECLARED_REFUSAL = "declared_refusal"
    """Declared by the endpoint or a filter: never requested again."""
    END = "end"
    """The answer holds a stop phrase; what comes before it still belongs to the generation."""
    EMPTY = "empty"


class JudgedAnswer(NamedTuple):
    kind: AnswerKind
    text: str
    """What may enter the generation: empty for refusals and empty answers, cut at a stop phrase."""
    token_ids: tuple[int, ...] | None = None
    """The text by its tokens, where the model runs here and the text was not cut."""


def judge(
    answer: Answer, *, refusal_patterns: Sequence[str], stop_phrases: Sequence[str], is_whole_searched: bool = False
) -> JudgedAnswer:
    """`is_whole_searched`: refusals are looked for in all of the answer, not in its opening alone."""
    if answer.is_declared_refusal:
        return JudgedAnswer(AnswerKind.DECLARED_REFUSAL, "")
    if not answer.text.strip():
        return JudgedAnswer(AnswerKind.EMPTY, "")
    opening = answer.text if is_whole_searched else answer.text.lstrip()[:OPENING_CHARACTERS]
    if any(re.search(pattern, opening, re.IGNORECASE) for pattern in refusal_patterns):
        return JudgedAnswer(AnswerKind.REFUSAL, "")
    places = [place for phrase in stop_phrases if (place := answer.text.find(phrase)) >= 0]
    if places:
        return JudgedAnswer(AnswerKind.END, answer.text[: min(places)])
    return JudgedAnswer(AnswerKind.TEXT, answer.text, answer.token_ids)


def first_usable(judged: Iterable[JudgedAnswer]) -> JudgedAnswer:
    """The first that is neither empty nor a refusal; failing that a declared refusal, a refusal, an empty one."""
    ranks = {AnswerKind.DECLARED_REFUSAL: 1, AnswerKind.REFUSAL: 2, AnswerKind.EMPTY: 3}
    return min(judged, key=lambda verdict: ranks.get(verdict.kind, 0))
