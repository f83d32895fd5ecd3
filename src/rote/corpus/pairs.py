"""Pairs of prefix and suffix as tokens: tokenised as one text, because that is what a model was trained on.

Tokenised apart, a suffix would begin like the beginning of a text (▁ in front, no blank merged into the word), with
tokens that never follow that prefix. Tokenised together, a token may reach over the boundary; it then belongs to the
suffix whole, and the pair says so.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rote.corpus.windows import SLICES_PER_BATCH, Tokenizer
from rote.errors import TextError
from rote.types import Encoding


class TextPair(NamedTuple):
    prefix: str
    suffix: str


class JoinedPair(NamedTuple):
    """A pair as tokens. Either side may have come out empty, which the caller must refuse in its own words."""

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    suffix_char_start: int
    """Where the first suffix token begins in prefix + suffix: before the boundary if it reaches over it."""
    is_clean: bool
    """Whether the prefix alone has these very prefix tokens; otherwise the tokenizer merged across the boundary."""


def join_pairs(pairs: Sequence[TextPair], tokenizer: Tokenizer) -> list[JoinedPair]:
    """Each pair tokenised as prefix + suffix and cut before the first token that holds a character of the suffix."""
    joined: list[JoinedPair] = []
    for first in range(0, len(pairs), SLICES_PER_BATCH):
        batch = pairs[first : first + SLICES_PER_BATCH]
        together = tokenizer.encode_batch([pair.prefix + pair.suffix for pair in batch])
        alone = tokenizer.encode_batch([pair.prefix for pair in batch])
        joined += [
            _join(encoding, len(pair.prefix), prefix.ids)
            for pair, encoding, prefix in zip(batch, together, alone, strict=True)
        ]
    return joined


def require_both_sides(pair: JoinedPair, place: str, *, bos_id: int | None) -> None:
    """A pair can be measured when something stands before the suffix, BOS included, and the suffix has a token."""
    if not pair.suffix_ids:
        raise TextError(f"{place}: the suffix has no token in this model's vocabulary; give it visible text.")
    if not pair.prefix_ids and bos_id is None:
        raise TextError(
            f"{place}: the first token already reaches into the suffix, so nothing is left of the prefix; "
            "make the prefix longer."
        )


def first_token_after(encoding: Encoding, boundary: int) -> int:
    """The place of the first token that ends behind character `boundary`."""
    return bisect_left(encoding.spans, boundary + 1, key=lambda span: span[1])


def _join(encoding: Encoding, boundary: int, prefix_alone: list[int]) -> JoinedPair:
    first = first_token_after(encoding, boundary)
    begins = encoding.spans[first][0] if first < len(encoding.ids) else boundary
    prefix, suffix = tuple(encoding.ids[:first]), tuple(encoding.ids[first:])
    # Spans may leave out the blank that a token begins with, so they cannot tell whether the boundary is clean.
    return JoinedPair(prefix, suffix, begins, is_clean=list(prefix) == prefix_alone)
