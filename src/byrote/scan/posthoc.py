"""What makes a continuation close to its target, when a finished search is judged afterwards.

    levenshtein, hamming   at most ε token edits
    bleu                   sentence BLEU of the decoded texts at least 0.75 (`bleu_threshold`)
    characters             character edits of the decoded texts, at most the share ε/T of the target's characters
    words                  word edits after normalising both texts, at most the share ε/T of the target's words
    text                   the decoded texts are equal, in whatever tokens

BLEU is sacrebleu's sentence score: 13a tokens, case kept, orders 1 to 4 (fewer for shorter texts), exponential
smoothing, brevity penalty. Normalised words are those of nv-recall (`corpus/normalise.py`). Every metric judges
continuations of exactly T tokens, as all of byrote's masses do: answers that end earlier count for none of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byrote.corpus.normalise import normalised_words
from byrote.distance.tokens import hamming
from byrote.errors import ConfigError
from byrote.scan.base import Measured
from byrote.scan.options import RunConfig
from byrote.search.base import SearchOutcome
from byrote.types import StopReason

SAME_TEXT = "text"
"""Nearness in every run that judges at all."""
TOKEN_METRICS = ("levenshtein", "hamming")
"""Those that look at tokens; the others give continuations of equal text the same answer."""


class Candidate(NamedTuple):
    """A continuation: its tokens, the text they decode to, and its Levenshtein distance to the target in tokens."""

    token_ids: tuple[int, ...]
    text: str
    edits: int


IsClose = Callable[[Candidate], bool]


class Nearness(NamedTuple):
    """How near counts: ε, and the BLEU from which a text counts."""

    edit_budget: int
    bleu_threshold: float


def judge_of(name: str, target: Candidate, how: Nearness) -> IsClose:
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


def _edits_of(units: int, target: Candidate, how: Nearness) -> int:
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


Decode = Callable[[tuple[int, ...]], str]


class MassBounds(NamedTuple):
    """Certified bounds on the mass of the continuations that are close by one metric."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Posthoc:
    """A window judged afterwards. The counts are None where nothing was searched."""

    bounds: Mapping[str, MassBounds]
    continuations: int | None
    texts: int | None
    """Different texts among the continuations."""
    merged_mass: float | None
    """Mass of the continuations whose text a heavier continuation has too."""


class PosthocStage:
    """Judges windows that the search has settled, by every metric asked for and by equal text."""

    def __init__(self, config: RunConfig, decode: Decode) -> None:
        self._names = (SAME_TEXT, *config.posthoc)
        self._how = Nearness(config.edit_budget, config.bleu_threshold)
        self._decode = decode

    def judge(self, item: Measured) -> None:
        """Adds the judgement to what is known of the window."""
        assert item.near is not None
        target = Candidate(item.window.suffix_ids, self._decode(item.window.suffix_ids), 0)
        item.posthoc = judged(item.near.outcome, target, item.score.p, self._names, self._how, self._decode)


def judged(
    outcome: SearchOutcome | None,
    target: Candidate,
    p_verbatim: float,
    names: Sequence[str],
    how: Nearness,
    decode: Decode,
) -> Posthoc:
    """Bounds by every metric. Without a search only the target's own probability is known."""
    if outcome is None:
        return Posthoc(dict.fromkeys(names, MassBounds(p_verbatim, 1.0)), None, None, None)
    _require_all(outcome)
    found = [Candidate(each.token_ids, decode(each.token_ids), each.distance) for each in outcome.continuations]
    masses = [math.exp(each.log_p) for each in outcome.continuations]
    bounds = {
        name: mass_bounds(
            outcome, _verdicts(name, found, judge_of(name, target, how)), masses, found, target, p_verbatim
        )
        for name in names
    }
    first_spelling = {candidate.text: place for place, candidate in reversed(list(enumerate(found)))}
    merged = math.fsum(mass for place, mass in enumerate(masses) if first_spelling[found[place].text] != place)
    return Posthoc(bounds, len(found), len(first_spelling), merged)


def mass_bounds(
    outcome: SearchOutcome,
    is_close: Sequence[bool],
    masses: Sequence[float],
    found: Sequence[Candidate],
    target: Candidate,
    p_verbatim: float,
) -> MassBounds:
    """Bounds on the mass of what is close. Where the search lost the target, its mass is part of what is open."""
    others, returned = 0.0, 0.0
    for candidate, close, mass in zip(found, is_close, masses, strict=True):
        if candidate.token_ids == target.token_ids:
            returned = p_verbatim
        elif close:
            others += mass
    # What a viability rule refuted need not be far by this metric, so it stays open, as does all that was not returned;
    # what closing and refining found besides is no longer open.
    open_mass = max(0.0, 1.0 - outcome.eos - math.fsum(masses))
    lower = min(1.0, others + p_verbatim)
    return MassBounds(lower, max(lower, min(1.0, others + returned + open_mass)))


def _verdicts(name: str, found: Sequence[Candidate], is_close: IsClose) -> list[bool]:
    if name in TOKEN_METRICS:
        return [is_close(candidate) for candidate in found]
    by_text = {candidate.text: candidate for candidate in found}
    verdicts = {text: is_close(candidate) for text, candidate in by_text.items()}
    return [verdicts[candidate.text] for candidate in found]


def _require_all(outcome: SearchOutcome) -> None:
    returned = math.fsum(math.exp(continuation.log_p) for continuation in outcome.continuations)
    # More than the search covered is there where closing or refining found more.
    if outcome.stop_reason is StopReason.FINISHED and returned < outcome.covered * (1 - 1e-9):
        raise ConfigError(
            f"the search kept {returned:.3g} of {outcome.covered:.3g} accepted mass; search with keep=None to judge "
            "continuations afterwards."
        )
