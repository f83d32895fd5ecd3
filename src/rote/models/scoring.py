"""Probabilities of given tokens under many policies, from one look at the logits.

Everything follows from each row's largest logits in falling order and the rank of the wanted token: a policy keeps
the token iff its rank is inside the kept set, and the normaliser is a prefix sum over the sorted values. So fifty
policies cost little more than one, and no full softmax is needed for top-k.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rote.policy import Policy, top_tokens

NUCLEUS_LIST = 1024
"""Values sorted for nucleus policies before falling back to the whole vocabulary."""


class TokenScores(NamedTuple):
    """Scores of one wanted token per row."""

    log_probs: Tensor  # [policies, rows] float64, −inf where the policy does not allow the token
    ranks: Tensor  # [rows] int64: tokens before it in falling logit, ties by lower id
    model_log_probs: Tensor  # [rows] float64: no temperature, no truncation


class WindowScores(NamedTuple):
    """Scores of every suffix token of every window; rows are windows of one shape."""

    log_probs: Tensor  # [policies, windows, suffix] float64
    ranks: Tensor  # [windows, suffix] int64
    model_log_probs: Tensor  # [windows, suffix] float64


def score_tokens(logits: Tensor, tokens: Tensor, policies: Sequence[Policy]) -> TokenScores:
    """Score `tokens` [rows] against `logits` [rows, vocab] under each policy."""
    vocab_size = logits.shape[-1]
    wanted = logits.gather(-1, tokens[:, None])  # [rows, 1]
    ranks = _ranks(logits, tokens, wanted)
    whole = logits.float().logsumexp(-1).double()
    values = _sorted_values(logits, policies, vocab_size)
    log_probs = torch.full((len(policies), len(tokens)), -math.inf, dtype=torch.float64, device=logits.device)
    by_temperature: dict[float, _Prefixes] = {}
    for row, policy in enumerate(policies):
        if policy.temperature not in by_temperature:
            by_temperature[policy.temperature] = _Prefixes(logits, values, wanted, whole, policy.temperature)
        log_probs[row] = by_temperature[policy.temperature].score(policy, ranks)
    return TokenScores(log_probs, ranks, wanted[:, 0].double() - whole)


def _ranks(logits: Tensor, tokens: Tensor, wanted: Tensor) -> Tensor:
    before = (logits > wanted).sum(-1)
    equal = logits == wanted
    if bool((equal.sum(-1) > 1).any()):
        ids = torch.arange(logits.shape[-1], device=logits.device)
        before = before + (equal & (ids < tokens[:, None])).sum(-1)
    return before


def _sorted_values(logits: Tensor, policies: Sequence[Policy], vocab_size: int) -> Tensor:
    widths = [policy.width(vocab_size) for policy in policies if policy.top_k is not None]
    if any(policy.top_k is None and policy.top_p is not None and policy.top_p < 1 for policy in policies):
        widths.append(min(NUCLEUS_LIST, vocab_size))
    if not widths:
        return logits[:, :0]
    return top_tokens(logits, max(widths))[0]


class _Prefixes:
    """Prefix sums of the sorted probabilities at one temperature, shared by all policies of that temperature."""

    def __init__(self, logits: Tensor, values: Tensor, wanted: Tensor, whole: Tensor, temperature: float) -> None:
        self.logits, self.temperature = logits, temperature
        self.wanted = wanted[:, 0].double() / temperature
        self.whole = whole if temperature == 1.0 else (logits.float() / temperature).logsumexp(-1).double()
        # Probability of each sorted token under no truncation, and what has accumulated up to and with it.
        self.masses = (values.double() / temperature - self.whole[:, None]).exp()
        self.accumulated = self.masses.cumsum(-1)  # [rows, listed]

    def score(self, policy: Policy, ranks: Tensor) -> Tensor:
        log_p = self.wanted - self.whole
        vocab_size = self.logits.shape[-1]
        width = policy.width(vocab_size)
        if policy.top_p is None or policy.top_p >= 1:
            if policy.top_k is None:
                return log_p
            kept = self.accumulated[:, width - 1]
            return torch.where(ranks < width, log_p - kept.log(), -math.inf)
        accumulated = self._reaching(policy.top_p) if policy.top_k is None else self.accumulated[:, :width]
        goal = policy.top_p * (1.0 if policy.top_k is None else accumulated[:, -1:])
        size = (accumulated < goal).sum(-1).clamp(max=accumulated.shape[1] - 1) + 1
        kept = accumulated.gather(1, size[:, None] - 1)[:, 0]
        return torch.where(ranks < size, log_p - kept.log(), -math.inf)

    def _reaching(self, top_p: float) -> Tensor:
        """Accumulated masses that reach `top_p` in every row: the listed ones, or the whole sorted vocabulary."""
        if self.accumulated.shape[1] < self.logits.shape[1] and bool((self.accumulated[:, -1] < top_p).any()):
            values = self.logits.sort(dim=-1, descending=True).values
            return (values.double() / self.temperature - self.whole[:, None]).exp().cumsum(-1)
        return self.accumulated
