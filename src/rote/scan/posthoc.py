"""Any similarity after the fact: bounds of the baseline search for a ball that no viability rule knows.

The baseline (`distance="none"`, `keep=None`) returns up to B·k continuations with exact probabilities. Whatever says
which of them count (edit distance, BLEU on decoded text, a judge) gives sound bounds:

    lower = Σ p over those that count        upper = lower + everything the search did not return and EOS did not end
"""

import math
from collections.abc import Callable, Sequence

from rote.distance.textbook import hamming, levenshtein
from rote.errors import ConfigError
from rote.search.base import SearchOutcome
from rote.types import Bounds, Continuation, StopReason

Counts = Callable[[Continuation], bool]
BLEU_THRESHOLD = 0.75


def posthoc_bounds(outcome: SearchOutcome, counts: Counts) -> Bounds:
    """Bounds on the mass of continuations for which `counts` is true. Needs all continuations of a baseline search."""
    returned = math.fsum(math.exp(continuation.log_p) for continuation in outcome.continuations)
    if outcome.stop_reason is StopReason.FINISHED and not math.isclose(returned, outcome.covered, rel_tol=1e-9):
        raise ConfigError(
            f"the search kept {returned:.3g} of {outcome.covered:.3g} accepted mass; search with keep=None to judge "
            "continuations afterwards."
        )
    lower = math.fsum(math.exp(found.log_p) for found in outcome.continuations if counts(found))
    # Refuted mass was dropped by a viability rule that need not agree with `counts`, so it stays open.
    open_mass = outcome.open_mass + outcome.refuted
    return Bounds((lower,), (min(1.0, lower + open_mass),))


def within_levenshtein(target: Sequence[int], edits: int) -> Counts:
    return lambda continuation: levenshtein(continuation.token_ids, target) <= edits


def within_hamming(target: Sequence[int], edits: int) -> Counts:
    return lambda continuation: hamming(continuation.token_ids, target) <= edits


def bleu_at_least(
    target_text: str, decode: Callable[[tuple[int, ...]], str], threshold: float = BLEU_THRESHOLD
) -> Counts:
    """Sentence BLEU of the decoded continuation against the target text, as a share of 1 (needs sacrebleu)."""
    if not 0 <= threshold <= 1:
        raise ConfigError(f"the BLEU threshold is {threshold}; it must be between 0 and 1.")
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)

    def counts(continuation: Continuation) -> bool:
        score = metric.sentence_score(decode(continuation.token_ids), [target_text]).score / 100
        return bool(score >= threshold)

    return counts
