"""Any similarity after the fact: bounds of the baseline search for a ball that no viability rule knows.

The baseline (`distance="none"`) returns up to B·k continuations with exact probabilities. Whatever says which of them
count (edit distance, BLEU on decoded text, a judge) gives sound bounds:

    lower = Σ p over those that count        upper = lower + everything the search did not return and EOS did not end

The target itself always counts, with the probability that teacher forcing gives it. Continuations that decode to the
same text are one text: `merged_mass` is what all but the heaviest spelling of each text weigh together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rote.errors import ConfigError
from rote.scan.closeness import SAME_TEXT, TOKEN_METRICS, Candidate, IsClose, Judged, judge_of
from rote.scan.measured import Measured
from rote.scan.options import RunConfig
from rote.search.base import SearchOutcome
from rote.types import StopReason

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
        self._how = Judged(config.edit_budget, config.bleu_threshold)
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
    how: Judged,
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
