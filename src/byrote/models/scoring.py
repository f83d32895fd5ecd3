"""Probabilities of given tokens under many policies, from one pass over the logits.

Everything follows from each row's largest logits in falling order and the rank of the wanted token: a policy keeps
the token iff its rank is inside the kept set, and the normaliser is a prefix sum over the sorted values. So fifty
policies cost little more than one, and no full softmax is needed for top-k.

Verbatim extraction: p_z = Π Pr_φ(z_t | z_<t) over the suffix, for any number of policies in one pass.

Weights and logits that are not numbers are an error, never a verdict.

Minus infinity is a legal logit: a token that cannot come. NaN, plus infinity and a row without any possible token are
not. They are made NaN where probabilities are made (`policy.keep`, `models.scoring`), travel with numbers that the host
reads anyway, and are refused there by name; no forward waits for a check.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byrote.errors import ModelError
from byrote.models.base import TreeModel, WindowScores
from byrote.policy import Policy, TopTokens, log_weight_of_all, top_tokens
from byrote.types import Window

NUCLEUS_LIST = 256
"""Values sorted for nucleus policies before falling back to the whole vocabulary."""


class TokenScores(NamedTuple):
    """Scores of one wanted token per row."""

    log_probs: Tensor  # [policies, rows] float64, −inf where the policy does not allow the token
    ranks: Tensor  # [rows] int64: tokens before it in falling logit, ties by lower id
    model_log_probs: Tensor  # [rows] float64: no temperature, no truncation
    standard_scores: Tensor | None = None  # [rows] float64: `standard_scores`, where requested


def tokens_to_list(policies: Sequence[Policy], vocab_size: int) -> int:
    """How many top tokens these policies need of each row."""
    widths = [policy.width(vocab_size) for policy in policies if policy.top_k is not None]
    if any(policy.top_k is None and policy.top_p is not None and policy.top_p < 1 for policy in policies):
        widths.append(min(NUCLEUS_LIST, vocab_size))
    return max(widths, default=0)


def score_tokens(
    logits: Tensor,
    tokens: Tensor,
    policies: Sequence[Policy],
    *,
    top: TopTokens | None = None,
    with_standard: bool = False,
) -> TokenScores:
    """Score `tokens` [rows] against `logits` [rows, vocab] under each policy. `top` are at least `tokens_to_list` top
    tokens of each row, if the caller has them. `with_standard` costs a pass over the whole vocabulary."""
    wanted = logits.gather(-1, tokens[:, None])  # [rows, 1]
    values = _SortedValues(logits, policies, top)
    ids = torch.arange(logits.shape[-1], device=logits.device)
    ranks = ((logits > wanted) | ((logits == wanted) & (ids < tokens[:, None]))).sum(-1)
    log_probs = torch.full((len(policies), len(tokens)), -math.inf, dtype=torch.float64, device=logits.device)
    temperatures = {1.0, *(policy.temperature for policy in policies)}
    by_temperature = {temperature: _Prefixes(values, wanted[:, 0], temperature) for temperature in temperatures}
    for row, policy in enumerate(policies):
        log_probs[row] = by_temperature[policy.temperature].score(policy, ranks)
    # A row that is not numbers is NaN for every policy, also where the wanted token is not kept.
    whole = by_temperature[1.0].whole_log_probs
    standard = standard_scores(logits, whole) if with_standard else None
    return TokenScores(log_probs + by_temperature[1.0].nothing, ranks, whole, standard)


def standard_scores(logits: Tensor, log_probs: Tensor) -> Tensor:
    """(log p − μ)/σ of each row's token, μ and σ being mean and standard deviation of log p(v) when v is drawn from the
    model's own distribution over the whole vocabulary (no temperature, no truncation). [rows] float64

    A model that is certain has σ = 0: its own token then scores 0, which is the limit, and any other −inf.
    """
    every = logits.double().log_softmax(-1)
    weights = every.exp()
    # Tokens without probability weigh nothing, and 0 · −inf is no number.
    every.masked_fill_(weights == 0, 0.0)
    mean = (weights * every).sum(-1)
    deviation = (weights * every.sub_(mean[:, None]).square_()).sum(-1).sqrt()
    distance = log_probs - mean
    certain = torch.where(log_probs == -math.inf, -math.inf, 0.0)
    return torch.where(deviation == 0, certain, distance / deviation)


def score_by_histories(
    next_logits: Callable[[Sequence[Sequence[int]]], Tensor],
    windows: Sequence[Sequence[int]],
    suffix_tokens: int,
    policies: Sequence[Policy],
) -> WindowScores:
    """Scores of the last `suffix_tokens` of each window (all of one length), one place after the other."""
    parts = []
    for place in range(suffix_tokens):
        histories = [window[: len(window) - suffix_tokens + place] for window in windows]
        wanted = torch.tensor([window[len(history)] for window, history in zip(windows, histories, strict=True)])
        parts.append(score_tokens(next_logits(histories), wanted, policies))
    return WindowScores(
        torch.stack([part.log_probs for part in parts], -1),
        torch.stack([part.ranks for part in parts], -1),
        torch.stack([part.model_log_probs for part in parts], -1),
    )


class _SortedValues:
    """Each row's largest logits in falling order; whole rows only where a nucleus reaches beyond the list."""

    def __init__(self, logits: Tensor, policies: Sequence[Policy], top: TopTokens | None) -> None:
        self.logits = logits
        self.vocab_size = logits.shape[-1]
        width = tokens_to_list(policies, self.vocab_size)
        known = top or (top_tokens(logits, width) if width else None)
        self.listed = logits[:, :0] if known is None else known.values[:, :width]  # [rows, listed]
        self.highest = self.listed[:, 0] if self.listed.shape[1] else logits.amax(-1)  # [rows]
        self._whole: dict[int, Tensor] = {}

    def whole(self, rows: Tensor) -> Tensor:
        """All values of `rows` in falling order; each row is sorted once for all policies. [rows, vocab]"""
        missing = [row for row in rows.tolist() if row not in self._whole]
        if missing:
            ordered = self.logits[missing].sort(dim=-1, descending=True).values
            self._whole |= dict(zip(missing, ordered, strict=True))
        return torch.stack([self._whole[row] for row in rows.tolist()])


class _Prefixes:
    """Prefix sums of the sorted weights at one temperature, shared by all policies of that temperature.

    Weights are relative to the row's largest, so that a top-k policy needs nothing beyond its own k values.
    """

    def __init__(self, values: _SortedValues, wanted: Tensor, temperature: float) -> None:
        self._values, self._temperature = values, temperature
        self._highest = values.highest.double() / temperature
        self._log_weight = wanted.double() / temperature - self._highest
        self._accumulated = self._weights(values.listed, self._highest).cumsum(-1)  # [rows, listed]

    @cached_property
    def _log_total(self) -> Tensor:
        """log of the weight of the whole vocabulary. [rows]"""
        return log_weight_of_all(self._values.logits, self._values.highest[:, None], self._temperature)

    @property
    def nothing(self) -> Tensor:
        """0, or NaN where a row of logits has NaN, +inf or nothing but −inf. [rows]"""
        return self._log_total * 0

    @property
    def whole_log_probs(self) -> Tensor:
        """log-probabilities when nothing is truncated. [rows]"""
        return self._log_weight - self._log_total

    def _weights(self, values: Tensor, highest: Tensor) -> Tensor:
        return (values.double() / self._temperature - highest[:, None]).exp()

    def score(self, policy: Policy, ranks: Tensor) -> Tensor:
        width = policy.width(self._values.vocab_size)
        inside = self._accumulated[:, :width]
        if policy.top_p is not None and policy.top_p < 1:
            if policy.top_k is None:
                return self._whole_nucleus(policy.top_p, ranks)
            return _nucleus(inside, policy.top_p * inside[:, -1], self._log_weight, ranks)
        if policy.top_k is None:
            return self.whole_log_probs
        return torch.where(ranks < width, self._log_weight - inside[:, -1].log(), -math.inf)

    def _whole_nucleus(self, top_p: float, ranks: Tensor) -> Tensor:
        """The nucleus of the whole vocabulary: from the list where it reaches, from whole rows elsewhere."""
        goal = top_p * self._log_total.exp()
        scores = _nucleus(self._accumulated, goal, self._log_weight, ranks)
        if self._accumulated.shape[1] < self._values.vocab_size:
            (rows,) = torch.nonzero(self._accumulated[:, -1] < goal, as_tuple=True)
            if len(rows):
                longer = self._weights(self._values.whole(rows), self._highest[rows]).cumsum(-1)
                scores[rows] = _nucleus(longer, goal[rows], self._log_weight[rows], ranks[rows])
        return scores


def _nucleus(accumulated: Tensor, goal: Tensor, log_weight: Tensor, ranks: Tensor) -> Tensor:
    """log-probabilities when only the smallest set whose weight reaches `goal` [rows] is kept."""
    size = (accumulated < goal[:, None]).sum(-1).clamp(max=accumulated.shape[1] - 1) + 1
    kept = accumulated.gather(1, size[:, None] - 1)[:, 0]
    return torch.where(ranks < size, log_weight - kept.log(), -math.inf)


def require_numbers(log_probs: Iterable[float], dtype: torch.dtype, *, what: str) -> None:
    """Refuse NaN among log-probabilities; `what` names their origin."""
    if any(math.isnan(value) for value in log_probs):
        raise ModelError(
            f"the model's logits for {what} are not numbers (NaN or infinity) in {_name(dtype)}. {_advice(dtype)}"
        )


def check_weights(model: Any, name: str) -> None:
    """Refuse weights that are not numbers, by the name of the first such layer."""
    for layer, weight in model.named_parameters():
        if weight.is_meta or not weight.is_floating_point() or not weight.numel():
            continue
        extremes = torch.stack(torch.aminmax(weight.detach()))
        if not bool(extremes.isfinite().all()):
            raise ModelError(
                f"{name} has weights that are not numbers (NaN or infinity): {layer} in {_name(weight.dtype)}. "
                f"{_advice(weight.dtype)}"
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _advice(dtype: torch.dtype) -> str:
    if dtype == torch.float16:
        return "Try --dtype bfloat16 or --dtype float32."
    if dtype == torch.bfloat16:
        return "Try --dtype float32."
    return "The model is broken; get its files again."


@dataclass(frozen=True, slots=True)
class VerbatimScore:
    """One window scored: the tuple fields have one element per policy, or per suffix token."""

    window: Window
    log_p: tuple[float, ...]
    """log p_z under each policy; −inf when some token is not allowed."""
    target_probs: tuple[float, ...]
    """Probability of each suffix token under the first policy."""
    suffix_ranks: tuple[int, ...]
    """How many tokens are more likely than each suffix token: 0 for the most likely one."""
    model_log_p: float
    """Sum of the model's own log-probabilities (no temperature, no truncation): −T · log perplexity."""
    first_choices: tuple[int, ...] = ()
    """The model's most likely token at every place of the suffix, where the pass listed it."""
    first_choice_log_probs: tuple[float, ...] = ()
    """The first policy's log-probability of each of those."""
    model_log_probs: tuple[float, ...] = ()
    """The model's own log-probability of every suffix token, where the pass kept them."""
    standard_scores: tuple[float, ...] = ()
    """Distance of each of them from the mean over the vocabulary, in standard deviations, where requested."""

    p_upper: float | None = None
    """Set where p_z is known only up to a server's cap: `p` is a lower bound then, and this an upper one."""

    @property
    def p(self) -> float:
        return math.exp(self.log_p[0])

    @property
    def token_evals(self) -> int:
        """The last token is not evaluated: nothing follows it."""
        return len(self.window.ids) - 1


def score_verbatim(
    model: TreeModel, windows: Iterable[Window], policies: Sequence[Policy], *, batch_windows: int
) -> Iterator[VerbatimScore]:
    """Scores in the windows' order; windows of one shape share a pass."""
    for batch in _batches(windows, batch_windows):
        suffix_tokens = len(batch[0].suffix_ids)
        scores = model.score([window.ids for window in batch], suffix_tokens, policies)
        log_p = scores.log_probs.sum(-1).T.tolist()  # [windows][policies]
        first = scores.log_probs[0].exp().tolist()
        ranks, own = scores.ranks.tolist(), scores.model_log_probs.sum(-1).tolist()
        for row, window in enumerate(batch):
            require_numbers([own[row]], model.dtype, what=f"window {window.window_id}")
            # A generation stops at an end-of-text token, so no continuation of T tokens has one before its end.
            can_be_generated = model.eos_ids.isdisjoint(window.suffix_ids[:-1])
            log_ps = tuple(log_p[row]) if can_be_generated else (-math.inf,) * len(policies)
            yield VerbatimScore(window, log_ps, tuple(first[row]), tuple(ranks[row]), own[row])


def _batches(windows: Iterable[Window], size: int) -> Iterator[list[Window]]:
    """Consecutive windows of one shape, at most `size` of them."""
    for _, group in groupby(windows, key=lambda window: (len(window.context_ids), len(window.suffix_ids))):
        while batch := list(islice(group, size)):
            yield batch
