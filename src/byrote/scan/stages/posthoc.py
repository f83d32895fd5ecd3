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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from byrote.corpus.normalise import normalised_words
from byrote.distance.tokens import hamming
from byrote.errors import ConfigError
from byrote.scan.measures.base import Decode, Measured
from byrote.scan.options import RunConfig
from byrote.search.base import SearchOutcome
from byrote.types import StopReason

SAME_TEXT = "text"
"""Judged in every run that judges at all."""
TOKEN_METRICS = ("levenshtein", "hamming")
"""Those of tokens; the others give continuations of equal text the same answer."""


class Candidate(NamedTuple):
    """A continuation: its tokens, the text they decode to, and its Levenshtein distance to the target in tokens."""

    token_ids: tuple[int, ...]
    text: str
    edits: int


class Nearness(NamedTuple):
    """What counts as near: ε, and the least BLEU."""

    edit_budget: int
    bleu_threshold: float


def judge_found(item: Measured, config: RunConfig, decode: Decode) -> None:
    """Judge a window that the search has settled, by every metric asked for and by equal text."""
    assert item.near is not None
    target = Candidate(item.window.suffix_ids, decode(item.window.suffix_ids), 0)
    nearness = Nearness(config.edits, config.bleu_threshold)
    item.posthoc = judged(item.near.outcome, target, item.score.p, (SAME_TEXT, *config.posthoc), nearness, decode)


def judged(
    outcome: SearchOutcome | None,
    target: Candidate,
    p_verbatim: float,
    names: Sequence[str],
    nearness: Nearness,
    decode: Decode,
) -> dict[str, Any]:
    """The columns of `posthoc_measure`. Without a search only the target's own probability is known."""
    if outcome is None:
        return {f"posthoc_{name}_{side}": p for name in names for side, p in (("lower", p_verbatim), ("upper", 1.0))}
    masses = [math.exp(each.log_p) for each in outcome.continuations]
    # More than the search covered is there where closing or refining found more.
    if outcome.stop_reason is StopReason.FINISHED and math.fsum(masses) < outcome.covered * (1 - 1e-9):
        raise ConfigError(
            f"the search kept {math.fsum(masses):.3g} of {outcome.covered:.3g} accepted mass; search with keep=None to "
            "judge continuations afterwards."
        )
    found = [Candidate(each.token_ids, decode(each.token_ids), each.distance) for each in outcome.continuations]
    first_spelling = {candidate.text: place for place, candidate in reversed(list(enumerate(found)))}
    merged = math.fsum(mass for place, mass in enumerate(masses) if first_spelling[found[place].text] != place)
    # What a viability rule refuted need not be far by this metric, so it stays open, as does all that was not returned;
    # what closing and refining found besides is no longer open.
    open_mass = max(0.0, 1.0 - outcome.eos - math.fsum(masses))
    row: dict[str, Any] = {
        "posthoc_continuations": len(found),
        "posthoc_texts": len(first_spelling),
        "posthoc_merged_mass": merged,
    }
    for name in names:
        is_close = judge_of(name, target, nearness)
        if name in TOKEN_METRICS:
            verdicts = [is_close(candidate) for candidate in found]
        else:
            by_text = {text: is_close(found[place]) for text, place in first_spelling.items()}
            verdicts = [by_text[candidate.text] for candidate in found]
        others, returned = 0.0, 0.0
        for candidate, verdict, mass in zip(found, verdicts, masses, strict=True):
            if candidate.token_ids == target.token_ids:
                returned = p_verbatim
            elif verdict:
                others += mass
        lower = min(1.0, others + p_verbatim)
        # Where the search lost the target, its mass is part of what is open.
        row[f"posthoc_{name}_lower"] = lower
        row[f"posthoc_{name}_upper"] = max(lower, min(1.0, others + returned + open_mass))
        row[f"posthoc_{name}_found"] = math.fsum(own for close, own in zip(verdicts, masses, strict=True) if close)
    return row


def judge_of(name: str, target: Candidate, nearness: Nearness) -> Callable[[Candidate], bool]:
    """Whether a continuation is close to `target` by the metric of this name."""
    budget = nearness.edit_budget
    if name == "hamming":
        return lambda found: hamming(found.token_ids, target.token_ids) <= budget
    if name == "levenshtein":
        return lambda found: found.edits <= budget
    if name == "bleu":
        from sacrebleu.metrics.bleu import BLEU

        metric = BLEU(effective_order=True)
        return lambda found: metric.sentence_score(found.text, [target.text]).score / 100 >= nearness.bleu_threshold
    if name == SAME_TEXT:
        return lambda found: found.text == target.text
    from rapidfuzz.distance import Levenshtein

    assert name in ("characters", "words"), name
    units = (lambda text: text) if name == "characters" else (lambda text: normalised_words(text).words)
    own = units(target.text)
    # The share ε/T in whole numbers: 29/50 · 50 is 28.999… in floats.
    most = len(own) * budget // len(target.token_ids)
    return lambda found: bool(Levenshtein.distance(units(found.text), own, score_cutoff=most) <= most)
