"""The threshold n: how much a prefix helps on text that everybody knows how to continue.

Generic texts are split in half: the first half is the prefix, the second the suffix. n is the mean of P(s|p)/v̂_s over
them, recomputed for every model. The ratio grows with the number of suffix tokens, so n belongs to a suffix length.
"""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rote.errors import ConfigError
from rote.stats.prior_mean import log_mean

LEAST_TEXTS = 3
"""A mean over fewer says nothing about generic text."""
EXACT_LENGTHS = 6
"""Up to this many suffix lengths are calibrated each by itself; more are rounded to powers of two."""


@dataclass(frozen=True, slots=True)
class GenericPair:
    """The halves of one generic text, of equal length."""

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RatioThreshold:
    """n for suffixes of one length, as a logarithm, with the ratios it came from (None when the user set it)."""

    suffix_tokens: int
    log_least_ratio: float
    log_ratios: tuple[float, ...] | None = None
    calibrated_at_tokens: int | None = None
    """Length of the generic suffixes; below `suffix_tokens` when the generic texts are too short for it."""

    @property
    def log_geometric_mean(self) -> float | None:
        """The middle on the log scale: the arithmetic mean is carried by the largest ratios."""
        return None if self.log_ratios is None else statistics.fmean(self.log_ratios)


def calibration_length(suffix_tokens: int, all_lengths: Collection[int]) -> int:
    """The length at which n for `suffix_tokens` is calibrated."""
    if len(set(all_lengths)) <= EXACT_LENGTHS:
        return suffix_tokens
    return int(2 ** round(math.log2(suffix_tokens)))


def generic_pairs(texts: Sequence[Sequence[int]], suffix_tokens: int) -> list[GenericPair]:
    """The first 2 · `suffix_tokens` tokens of every text that has them, halved; of the longest texts, if too few have.

    Raises when even the `LEAST_TEXTS` longest ones have fewer than two tokens.
    """
    lengths = sorted((len(text) for text in texts), reverse=True)
    if len(lengths) < LEAST_TEXTS or lengths[LEAST_TEXTS - 1] < 2:
        raise ConfigError(
            f"{len(lengths)} generic texts are too few or too short to calibrate the ratio threshold n; give at least "
            f"{LEAST_TEXTS} texts of some length with --generic, or set n with --least-ratio."
        )
    half = min(suffix_tokens, lengths[LEAST_TEXTS - 1] // 2)
    return [GenericPair(tuple(text[:half]), tuple(text[half : 2 * half])) for text in texts if len(text) >= 2 * half]


def calibrate(suffix_tokens: int, pairs: Sequence[GenericPair], log_ratios: Sequence[float]) -> RatioThreshold:
    """n = the mean ratio over the generic pairs."""
    return RatioThreshold(suffix_tokens, log_mean(log_ratios), tuple(log_ratios), len(pairs[0].suffix_ids))
