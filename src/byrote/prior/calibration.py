"""The threshold n: how much its own prefix helps on generic text.

Generic texts are of two kinds, as published: short formulaic sentences for suffixes of a few tokens, long ones for
others. Each is cut in half. The prefix is the end of the first half, as long as all other prefixes; the suffix is the
beginning of the second half, as long as the suffixes that n is for. n is the mean of P(s|p)/P(s) over the texts whose
suffix is possible after its prefix under the policy.

n is estimated from drawn prefixes, and other texts would give another. Its interval allows for both:

- draws: an end leaves out the n that these texts have with P(s) known with a chance of at most 1.25 %, whatever the
  distribution. From above: n ≤ (mean of P(s|p)/v̂) / share, by Jensen and Markov, however many texts there are. With
  weights w in proportion to the true ratios, n̂/n = Σ w·P(s)/v̂ ≥ 1/Σ w·v̂/P(s), and the last sum has mean 1. From
  below: every P(s) at its upper limit, all of them at once;
- texts: wide enough for the n of as many other texts if ratios are log-normal (`stats/lognormal.py`). That is an
  assumption: where the upper tail is heavier, other texts fall outside more often, and nothing is stated about them.

A suffix that none of the drawn prefixes allows (under top-k, say) has a ratio that nothing bounds. It cannot enter the
mean, and n then has no upper end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

import numpy as np

from byrote.errors import ConfigError, TextError
from byrote.files import read_bytes
from byrote.prior.draws import shorten
from byrote.prior.verdicts import LEVEL, upper_limit
from byrote.stats.intervals import undefined
from byrote.stats.prior_mean import PriorEstimate, log_mean, predicted_log_mean
from byrote.types import Interval, Split, Window

LEAST_TEXTS = 3
"""The least a mean over generic texts is taken of."""
SHORT_TEXT_TOKENS = 40
"""Generic texts of fewer tokens are short ones."""


class GenericScore(NamedTuple):
    """What was measured of one generic text."""

    log_conditional: float
    prior: PriorEstimate


@dataclass(frozen=True, slots=True)
class RatioThreshold:
    """n for suffixes of one length, as a logarithm (NaN where it cannot be calibrated), with the interval of log n."""

    log_least_ratio: float
    interval: Interval
    log_ratios: tuple[float, ...] = ()
    """The ratios whose mean n is; none when the user set n."""
    calibrated_at_tokens: int | None = None
    """Length of the generic suffixes; below that of the scored ones when the generic texts are too short for it."""
    impossible: int = 0
    """Generic suffixes of probability 0 after their own prefix; they are left out."""
    unseen: int = 0
    """Generic suffixes that none of the reference prefixes allows; they are left out and n has no upper end."""

    @property
    def log_geometric_mean(self) -> float:
        """The middle on the log scale: the arithmetic mean is carried by the largest ratios."""
        return float(np.mean(self.log_ratios)) if self.log_ratios else math.nan

    @property
    def largest_share(self) -> float:
        """Share of n that comes from the text with the largest ratio; 1/texts where all are alike."""
        if not self.log_ratios:
            return math.nan
        return math.exp(max(self.log_ratios) - self.log_least_ratio) / len(self.log_ratios)

    @classmethod
    def given(cls, least_ratio: float) -> "RatioThreshold":
        """n as the user set it: known, not estimated."""
        log_n = math.log(least_ratio) if least_ratio else -math.inf
        return cls(log_n, Interval(log_n, log_n, LEVEL))


def read_generic(path: str | None) -> list[str]:
    """Generic texts, one a line: the user's, or byrote's own."""
    if path is None:
        content = resources.files("byrote.prior").joinpath("generic_sentences.txt").read_text(encoding="utf-8")
    else:
        try:
            content = read_bytes(path).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise TextError(f"the generic texts {path} cannot be read: {error}.") from error
    return [line.strip() for line in content.splitlines() if line.strip()]


def generic_kind(texts: Sequence[Sequence[int]], suffix_tokens: int) -> list[Sequence[int]]:
    """The texts that n for `suffix_tokens` rests on: the short ones if at least half of them have a suffix of that
    length in their second half, otherwise the long ones; all of them where a kind has fewer than `LEAST_TEXTS`."""
    short = [text for text in texts if len(text) < SHORT_TEXT_TOKENS]
    long = [text for text in texts if len(text) >= SHORT_TEXT_TOKENS]
    enough = sum(len(text) - len(text) // 2 >= suffix_tokens for text in short)
    chosen = short if 2 * enough >= len(short) > 0 else long
    return chosen if len(chosen) >= LEAST_TEXTS else list(texts)


def generic_length(texts: Sequence[Sequence[int]], suffix_tokens: int) -> int:
    """The length at which n for `suffix_tokens` is calibrated: that, or what enough texts have in their second half."""
    halves = sorted((len(text) - len(text) // 2 for text in texts if len(text) >= 2), reverse=True)
    if len(halves) < LEAST_TEXTS:
        raise ConfigError(
            f"{len(texts)} generic texts are too few or too short to calibrate the ratio threshold n; give at least "
            f"{LEAST_TEXTS} texts of some length with --generic, or set n with --least-ratio."
        )
    return min(suffix_tokens, halves[LEAST_TEXTS - 1])


def generic_windows(
    texts: Sequence[Sequence[int]], *, prefix_tokens: int, suffix_tokens: int, bos_id: int | None
) -> list[Window]:
    """Every text whose second half has `suffix_tokens` tokens; BOS in front of the prefix and counted, as elsewhere."""
    bos = () if bos_id is None else (bos_id,)
    windows = []
    for text in texts:
        half = len(text) // 2
        if half and len(text) - half >= suffix_tokens:
            prefix = shorten((*bos, *text[:half]), prefix_tokens, bos_id)
            windows.append(Window("", "", Split.CONTROL, 0, 0, 0, prefix, tuple(text[half : half + suffix_tokens])))
    return windows


def calibrate(calibrated_at: int, scores: Sequence[GenericScore]) -> RatioThreshold:
    """n and its interval from the generic texts as they were measured."""
    possible = [score for score in scores if score.log_conditional > -math.inf]
    seen = [score for score in possible if score.prior.log_mean > -math.inf]
    ratios = tuple(score.log_conditional - score.prior.log_mean for score in seen)
    if len(seen) >= LEAST_TEXTS:
        log_n = log_mean(ratios)
        interval = _interval(log_n, ratios, possible)
    else:
        log_n = math.nan
        interval = undefined(
            f"the policy can say {len(possible)} of {len(scores)} generic suffixes after their own prefix and "
            f"{len(seen)} of them after a reference prefix, {LEAST_TEXTS} are needed; loosen the policy, give other "
            "texts with --generic, or set n with --least-ratio",
            level=LEVEL,
        )
    impossible, unseen = len(scores) - len(possible), len(possible) - len(seen)
    return RatioThreshold(log_n, interval, ratios, calibrated_at, impossible, unseen)


def _interval(log_n: float, log_ratios: Sequence[float], possible: Sequence[GenericScore]) -> Interval:
    share = (1.0 - LEVEL) / 4.0
    # A prediction for other texts may leave out these texts; the interval holds both.
    other = predicted_log_mean(log_ratios, level=1.0 - 2.0 * share).high
    high = max(other, log_n) - math.log(share)
    limits = [score.log_conditional - upper_limit(score.prior, share / len(possible)) for score in possible]
    least = [one for one in limits if one < math.inf]
    low = min(predicted_log_mean(least, level=1.0 - 2.0 * share).low, log_mean(least))
    return Interval(low, math.inf if len(log_ratios) < len(possible) else high, LEVEL)
