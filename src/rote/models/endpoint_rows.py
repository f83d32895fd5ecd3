"""What a server says about the next token: its most likely tokens, and what follows for the tokens it does not list.

A row has K tokens with their log-probabilities. A policy that keeps k ≤ K of them is known exactly. One that keeps more
is known up to its normaliser N, the weight of the k heaviest tokens: with S the weight of the listed ones, p_K the
lightest of these and R = 1 − S the probability that is left,

    S ≤ N ≤ N⁺ = S + the most weight that k − K tokens can have, each at most p_K, all together at most R

At temperature β a token of probability p weighs p^(1/β), which is concave for β ≥ 1 and convex below. So the most
weight is that of equal tokens, min(p_K, R/(k − K)) each, for β ≥ 1; and for β < 1 that of as many tokens of p_K as R
pays for, and one of the rest. At β = 1 both give N⁺ = min(1, S + (k − K)·p_K).

The unlisted tokens of a row are filled in that way, so that the policy's own normaliser of the filled row is N⁺.
Whoever lists K tokens of it (`keep` with `cap=K`) gets p/N⁺ ≤ p/N for each, a lower bound on its probability, and
1 − S/N⁺ as unlisted: at least the probability of all other tokens, and what the listed ones may weigh more. Products of
such bounds are lower bounds on paths; what a path's nodes leave unlisted, added up, is all that its continuations can
weigh more. So sums of both kinds enclose the truth at every edit distance, by the same ledger that serves
`max_children`.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rote.errors import EndpointError
from rote.policy import Policy

LOWEST = -9999.0
"""Servers write minus infinity as this or less, because JSON has no infinity."""
MOST_TOGETHER = 1.01
"""Listed probabilities that add up to more than this are none; servers round."""


ROUNDING = 1e-6
"""How far the sum of listed probabilities may be off: log-probabilities are told in float32."""


class Row(NamedTuple):
    """The K most likely tokens in falling probability, ties by lower id."""

    token_ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]

    @property
    def by_token(self) -> dict[int, float]:
        return dict(zip(self.token_ids.tolist(), self.log_probs.tolist(), strict=True))

    def to_bytes(self) -> bytes:
        return self.token_ids.astype("<i4").tobytes() + self.log_probs.astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes) -> "Row":
        half = len(stored) // 2
        return cls(np.frombuffer(stored[:half], "<i4"), np.frombuffer(stored[half:], "<f4"))


def row_of(said: Mapping[int, float], *, listed: int, vocab_size: int) -> Row:
    """A row out of what a server said, checked. Servers add the token that was sampled, or that comes next; where it is
    not among the most likely it is left out: a list with gaps would say nothing about what it leaves out."""
    expected = min(listed, vocab_size)
    if len(said) < expected:
        raise EndpointError(
            f"the server listed {len(said)} tokens where {expected} were asked for; "
            f"give --logprobs {max(1, len(said))}."
        )
    if (largest := max(said)) >= vocab_size or min(said) < 0:
        raise EndpointError(
            f"the server listed token {largest if largest >= vocab_size else min(said)}, but the tokenizer knows "
            f"{vocab_size} tokens; give the --tokenizer of the model that is served, with its config.json."
        )
    chosen = sorted(said.items(), key=lambda item: (-item[1], item[0]))[:expected]
    values = np.array([value for _, value in chosen], dtype=np.float64)
    values[values <= LOWEST] = -math.inf
    together = float(np.exp(np.minimum(values, 1.0)).sum())
    if not (values < 0.01).all() or not 0 < together <= MOST_TOGETHER:
        raise EndpointError(
            f"the server's probabilities of one token's place add up to {together:.3f}; they are no probabilities."
        )
    return Row(np.array([token for token, _ in chosen], dtype=np.int32), values.astype(np.float32))


class Filling(NamedTuple):
    """How whole rows are made of listed ones, for one policy."""

    policy: Policy
    listed: int
    vocab_size: int

    @property
    def is_exact(self) -> bool:
        """Whether the server lists all tokens that the policy can keep."""
        return self.policy.width(self.vocab_size) <= self.listed

    def logits(self, rows: Iterable[Row]) -> Tensor:
        """[rows, vocab] float32: log-probabilities, the unlisted ones filled in as this module's head says."""
        filled = [self._filled(row) for row in rows]
        return torch.from_numpy(np.stack(filled)) if filled else torch.zeros(0, self.vocab_size)

    def open_share(self, row: Row) -> float:
        """1 − S/N⁺: how much of the policy's next token is open for want of a longer list."""
        if self.is_exact:
            return 0.0
        temperature = self.policy.temperature
        known = np.exp(row.log_probs.astype(np.float64) / temperature).sum()
        added = np.exp(self._unlisted(row).astype(np.float64) / temperature).sum()
        return float(added / (known + added))

    def _filled(self, row: Row) -> NDArray[np.float32]:
        logits = np.full(self.vocab_size, -np.inf, dtype=np.float32)
        logits[row.token_ids] = row.log_probs
        fill = self._unlisted(row)
        is_free = np.ones(self.vocab_size, dtype=bool)
        is_free[row.token_ids] = False
        free = np.flatnonzero(is_free)[: len(fill)]
        logits[free] = fill[: len(free)]
        return logits

    def _unlisted(self, row: Row) -> NDArray[np.float32]:
        """Log-probabilities given to tokens that are not listed, as many as the policy can keep."""
        width = self.vocab_size if self.is_exact else self.policy.width(self.vocab_size)
        count = max(0, width - len(row.log_probs))
        rest = max(0.0, 1.0 - float(np.exp(row.log_probs.astype(np.float64)).sum()))
        # Above 1 a temperature lifts what is light: the rounding of a sum near 1 would weigh many times itself.
        rest += ROUNDING if self.policy.temperature > 1 and not self.is_exact else 0.0
        lightest = row.log_probs.min()
        # Strictly below the lightest: among equals the lower id comes first, and an invented one must never.
        ceiling = np.nextafter(lightest, np.float32(-np.inf)) if np.isfinite(lightest) else np.float32(-np.inf)
        if not count or rest == 0.0 or ceiling == -np.inf:
            return np.full(count, -np.inf, dtype=np.float32)
        if self.policy.temperature >= 1:
            return np.full(count, min(ceiling, np.float32(math.log(rest / count))), dtype=np.float32)
        whole = min(count, int(rest / math.exp(float(ceiling))))
        fill = np.full(count, -np.inf, dtype=np.float32)
        fill[:whole] = ceiling
        left = rest - whole * math.exp(float(ceiling))
        if whole < count and left > 0:
            fill[whole] = min(ceiling, np.float32(math.log(left)))
        return fill
