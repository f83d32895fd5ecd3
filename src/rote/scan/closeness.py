"""What makes a continuation close to its target, when a finished search is judged afterwards.

    levenshtein, hamming   at most ε token edits
    bleu                   sentence BLEU of the decoded texts at least 0.75 (`bleu_threshold`)
    characters             character edits of the decoded texts, at most the share ε/T of the target's characters
    words                  word edits after normalising both texts, at most the share ε/T of the target's words
    text                   the decoded texts are equal, in whatever tokens

BLEU is sacrebleu's sentence score: 13a tokens, case kept, orders 1 to 4 (fewer for shorter texts), exponential
smoothing, brevity penalty. Normalised words are those of nv-recall (`corpus/normalise.py`). Every metric judges
continuations of exactly T tokens, as all of rote's masses do: answers that end earlier count for none of them.
"""

from collections.abc import Callable
from typing import NamedTuple

from rote.corpus.normalise import normalised_words
from rote.distance.textbook import hamming

SAME_TEXT = "text"
"""Judged in every run that judges at all."""
TOKEN_METRICS = ("levenshtein", "hamming")
"""Those that look at tokens; the others give continuations of equal text the same answer."""


class Candidate(NamedTuple):
    """A continuation: its tokens, the text they decode to, and its Levenshtein distance to the target in tokens."""

    token_ids: tuple[int, ...]
    text: str
    edits: int


IsClose = Callable[[Candidate], bool]


class Judged(NamedTuple):
    """How near counts: ε, and the BLEU from which a text counts."""

    edit_budget: int
    bleu_threshold: float


def judge_of(name: str, target: Candidate, how: Judged) -> IsClose:
    """Whether a continuation is close to `target` by the metric of this name."""
    if name == "hamming":
        return lambda found: hamming(found.token_ids, target.token_ids) <= how.edit_budget
    if name == "levenshtein":
        return lambda found: found.edits <= how.edit_budget
    if name == "bleu":
        return _bleu_at_least(target.text, how.bleu_threshold)
    if name == "characters":
        return _within_characters(target.text, _edits_of(len(target.text), target, how))
    if name == "words":
        words = normalised_words(target.text).words
        return _within_words(words, _edits_of(len(words), target, how))
    assert name == SAME_TEXT, name
    return lambda found: found.text == target.text


def _edits_of(units: int, target: Candidate, how: Judged) -> int:
    """The share ε/T of so many characters or words, in whole numbers: 29/50 · 50 is 28.999… in floats."""
    return units * how.edit_budget // len(target.token_ids)


def _bleu_at_least(target_text: str, threshold: float) -> IsClose:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)
    return lambda found: metric.sentence_score(found.text, [target_text]).score / 100 >= threshold


def _within_characters(target_text: str, edits: int) -> IsClose:
    from rapidfuzz.distance import Levenshtein

    return lambda found: Levenshtein.distance(found.text, target_text, score_cutoff=edits) <= edits


def _within_words(target_words: tuple[str, ...], edits: int) -> IsClose:
    from rapidfuzz.distance import Levenshtein

    def is_close(found: Candidate) -> bool:
        words = normalised_words(found.text).words
        return bool(Levenshtein.distance(words, target_words, score_cutoff=edits) <= edits)

    return is_close
