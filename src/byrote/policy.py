"""Decoding policy φ: raw logits → renormalised log-probabilities of the kept tokens.

The order is fixed: divide by the temperature, keep the allowed set, renormalise over the kept set. Everything else
has probability 0 (log −inf). Ties are broken by token id, lower first, so that top-k keeps exactly k tokens whatever
the batch; some published code keeps all ties and differs there. With top-k and nucleus together, top-k acts first and
the nucleus is taken over what it left. Greedy decoding is top-k with k = 1.

    log p(token) = y/β − logsumexp(kept y/β)        (float64; only the kept logits are needed)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byrote.errors import ConfigError

try:
    import triton
    import triton.language as tl
except ImportError:  # pragma: no cover: a machine without a GPU build of torch
    triton = None

BLOCK = 32
"""Tokens in a block; see `_largest`."""
BLOCKS_PER_PROGRAM = 256
"""Of the kernel."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Temperature β, then top-k and/or nucleus truncation. None means no truncation of that kind."""

    temperature: float
    top_k: int | None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(
                f"temperature is {self.temperature}; it must be above 0. For greedy decoding use --top-k 1."
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top-k is {self.top_k}; it must be at least 1. Leave it out for no truncation.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"top-p is {self.top_p}; it must be above 0 and at most 1.")

    def check_vocabulary(self, vocab_size: int) -> None:
        if self.top_k is not None and self.top_k > vocab_size:
            raise ConfigError(
                f"top-k is {self.top_k}, but the model's vocabulary has {vocab_size} tokens. Choose a smaller --top-k."
            )

    def width(self, vocab_size: int) -> int:
        """The most tokens that can be kept."""
        return vocab_size if self.top_k is None else min(self.top_k, vocab_size)

    def describe(self) -> str:
        parts = [f"temperature {self.temperature:g}"]
        parts += [f"top-k {self.top_k}"] if self.top_k is not None else []
        parts += [f"top-p {self.top_p:g}"] if self.top_p is not None else []
        return ", ".join(parts)


def require_inside(policy: Policy, searched: Policy, *, listed: int | None, name: str) -> None:
    """A ConfigError unless a search under `searched`, which lists this many tokens after every node (None: all), visits
    everything that `policy`, written as `name`, can say, whatever the logits."""
    if searched.top_p is not None and searched.top_p < 1:
        raise ConfigError(
            f"policies has {name}, but the search keeps a nucleus (top-p {searched.top_p:g}), which leaves out tokens "
            "that other settings keep; search without --top-p, and give the nucleus among the policies, as in "
            f"k={searched.top_k or 40}+p={searched.top_p:g}."
        )
    if listed is not None and (policy.top_k is None or policy.top_k > listed):
        few = f"k={listed}+{name}" if policy.top_k is None else f"k={listed}"
        raise ConfigError(
            f"policies has {name}, which keeps tokens beyond the {listed:,} most likely ones that the search lists; "
            f"write {few}, or search more with --top-k."
        )


class Kept(NamedTuple):
    """Kept tokens in falling probability, ties by lower id. Unused places have log-probability −inf."""

    token_ids: Tensor  # [..., kept] int64
    log_probs: Tensor  # [..., kept] float64
    unlisted: Tensor  # [...] float64: probability of kept tokens beyond the listed ones (0 without a cap)


class TopTokens(NamedTuple):
    """The largest logits in falling order and their token ids."""

    values: Tensor  # [..., count]
    token_ids: Tensor  # [..., count] int64


def keep(logits: Tensor, policy: Policy, *, cap: int | None = None, top: TopTokens | None = None) -> Kept:
    """Tokens the policy allows after `logits` [..., vocab], with their renormalised log-probabilities. A row with NaN,
    with +inf or with nothing but −inf becomes NaN, all of it.

    `cap` limits how many are listed, heaviest first; the probabilities stay exact and the mass of the rest is
    returned as `unlisted`. `top` are at least as many top tokens, if they have been found already.
    """
    vocab_size = logits.shape[-1]
    width = policy.width(vocab_size)
    listed = width if cap is None else min(width, cap)
    values, token_ids = (tensor[..., :listed] for tensor in top or top_tokens(logits, listed))
    scaled = values.double() / policy.temperature
    log_probs = scaled - (_log_normaliser(logits, policy, width) if listed < width else scaled.logsumexp(-1, True))
    if policy.top_p is not None and policy.top_p < 1:
        inside = _inside_nucleus(log_probs, policy.top_p)
        kept_mass = torch.where(inside, log_probs.exp(), 0.0).sum(-1, keepdim=True)
        if listed < width and bool((kept_mass < policy.top_p).any()):
            kept_mass = _nucleus_mass(logits, policy, width)[..., None]
        log_probs = torch.where(inside, log_probs - kept_mass.log(), -math.inf)
    nothing = zero_or_nan(logits)
    unlisted = (1 - log_probs.exp().sum(-1)).clamp(min=0) if listed < width else torch.zeros_like(log_probs[..., 0])
    return Kept(token_ids, log_probs + nothing[..., None], unlisted + nothing)


def under_policies(kept: Kept, searched: Policy, policies: Sequence[Policy]) -> Tensor:
    """Log-probabilities of the listed tokens under policies whose kept sets are beginnings of the list: a top-k of at
    most as many tokens, or a nucleus inside one, at any temperature. [..., policies, kept] float64

    Logits are known up to a constant, y = β · log p + c, and every such policy is a function of their differences. So
    `searched`, under which `kept` was made, must not have a nucleus: its top-k beyond the nucleus is not known.
    """
    width = kept.log_probs.shape[-1]
    found = [kept.log_probs.new_empty((*kept.log_probs.shape[:-1], 0, width))]
    for policy in policies:
        log_probs = _normalised(kept.log_probs[..., : policy.top_k] * (searched.temperature / policy.temperature))
        if policy.top_p is not None and policy.top_p < 1:
            log_probs = _normalised(log_probs.masked_fill(~_inside_nucleus(log_probs, policy.top_p), -math.inf))
        missing = width - log_probs.shape[-1]
        found.append(torch.nn.functional.pad(log_probs, (0, missing), value=-math.inf)[..., None, :])
    return torch.cat(found, -2)


def _normalised(log_weights: Tensor) -> Tensor:
    """Log-probabilities; −inf where a row has no weight at all, as that of a beam that is not alive."""
    total = log_weights.logsumexp(-1, keepdim=True)
    return log_weights - total.masked_fill(total == -math.inf, 0.0)


def zero_or_nan(logits: Tensor) -> Tensor:
    """0 for each row, or NaN where it has NaN, +inf or nothing but −inf. [...] float64

    Added to numbers that the host reads anyway, it reports broken logits without a wait for the device.
    """
    return logits.amax(-1).double() * 0


def top_tokens(logits: Tensor, count: int) -> TopTokens:
    """The `count` largest logits in falling order and their token ids; equal logits by lower id. Exact under ties."""
    logits, vocab_size = logits.float(), logits.shape[-1]
    if logits.device.type != "cpu":
        return TopTokens(*_top_tokens_by_key(logits, count))
    if count == vocab_size:
        ordered = logits.sort(dim=-1, descending=True, stable=True)
        return TopTokens(ordered.values, ordered.indices)
    values, ids = _largest(logits, count + 1)
    # topk breaks ties arbitrarily: fine while equal values do not straddle the cut, wrong otherwise.
    straddled = values[..., count - 1] == values[..., count]
    values, ids = _order_ties(values[..., :count], ids[..., :count])
    if bool(straddled.any()):
        fixed_values, fixed_ids = _top_tokens_by_key(logits[straddled], count)
        values[straddled], ids[straddled] = fixed_values, fixed_ids
    return TopTokens(values, ids)


def _largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`topk`, restricted to the blocks of tokens with the largest maxima where that is less work.

    The `count` largest values lie in `count` such blocks: each of those holds a value at least as large as anything
    outside them. Values are those of `topk`; the order of equal ones is as arbitrary. Block b holds the tokens b,
    b + blocks, b + 2 · blocks …, so that maxima are taken over whole rows of memory.
    """
    vocab_size = logits.shape[-1]
    blocks = vocab_size // BLOCK
    if logits.dim() != 2 or vocab_size % BLOCK or 3 * count > blocks or not logits.is_contiguous():
        return logits.topk(count, -1)
    rectangle = logits.view(-1, BLOCK, blocks)
    chosen = rectangle.amax(1).topk(count, -1).indices  # [rows, count]
    inside = rectangle.gather(2, chosen[:, None].expand(-1, BLOCK, -1)).flatten(1)
    values, places = inside.topk(count, -1)
    ids = places // count * blocks + chosen.gather(1, places % count)
    return values, ids


def _order_ties(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Order equal values by id. `values` is already falling, so sorting ids first and values stably after suffices."""
    if not bool((values[..., 1:] == values[..., :-1]).any()):
        return values, ids
    by_id = ids.argsort(-1)
    values, ids = values.gather(-1, by_id), ids.gather(-1, by_id)
    ordered = values.sort(dim=-1, descending=True, stable=True)
    return ordered.values, ids.gather(-1, ordered.indices)


def _top_tokens_by_key(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Top tokens through one integer key per token: the logit as an ordered integer, then the id reversed."""
    vocab_size = logits.shape[-1]
    has_kernel = triton is not None and logits.is_cuda and logits.dtype == torch.float32 and logits.dim() == 2
    if not has_kernel or 3 * count * BLOCK > vocab_size:
        keys = _keys(logits, torch.arange(vocab_size, device=logits.device))
        token_ids = _largest(keys, count)[1]
        return logits.gather(-1, token_ids), token_ids
    # The largest keys lie in the blocks with the largest best keys.
    best = _best_keys(logits)
    chosen = best.topk(count, -1).indices  # [rows, count]
    ids = (chosen[:, None] + torch.arange(BLOCK, device=logits.device)[:, None] * best.shape[-1]).flatten(1)
    inside = logits.gather(-1, ids.clamp(max=vocab_size - 1))
    keys = torch.where(ids < vocab_size, _keys(inside, ids), torch.iinfo(torch.int64).min)
    token_ids = ids.gather(-1, keys.topk(count, -1).indices)
    return logits.gather(-1, token_ids), token_ids


def _keys(logits: Tensor, ids: Tensor) -> Tensor:
    """Integers in the order of the logits, equal ones by lower id."""
    bits = (logits + 0.0).view(torch.int32)  # −0.0 becomes 0.0: they tie
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return (ordered << 32) + (0x7FFFFFFF - ids)


def log_weight_of_all(logits: Tensor, highest: Tensor, temperature: float) -> Tensor:
    """log Σ exp((y − highest)/β) over the vocabulary, in float64. `highest` is [..., 1]; [...] float64."""
    return logits.double().sub_(highest).div_(temperature).exp_().sum(-1).log()


def _log_normaliser(logits: Tensor, policy: Policy, width: int) -> Tensor:
    """logsumexp over the top `width` logits at the policy's temperature. [..., 1] float64."""
    if width == logits.shape[-1]:
        highest = logits.amax(-1, keepdim=True)
        whole = log_weight_of_all(logits, highest, policy.temperature)[..., None]
        return highest.double() / policy.temperature + whole
    values, _ = top_tokens(logits, width)
    return (values.double() / policy.temperature).logsumexp(-1, keepdim=True)


def _inside_nucleus(log_probs: Tensor, top_p: float) -> Tensor:
    """Which of the falling probabilities belong to the smallest set whose mass reaches `top_p`: those before which
    less than `top_p` has accumulated."""
    accumulated = log_probs.exp().cumsum(-1)
    inside = torch.ones_like(accumulated, dtype=torch.bool)
    inside[..., 1:] = accumulated[..., :-1] < top_p
    return inside


def _nucleus_mass(logits: Tensor, policy: Policy, width: int) -> Tensor:
    assert policy.top_p is not None
    values, _ = top_tokens(logits, width)
    log_probs = (values.double() / policy.temperature).log_softmax(-1)
    return torch.where(_inside_nucleus(log_probs, policy.top_p), log_probs.exp(), 0.0).sum(-1)


def _best_keys(logits: Tensor) -> Tensor:
    """The largest key in each block of tokens. [rows, blocks] int64; `logits` [rows, vocab] float32 on a GPU."""
    rows, vocab_size = logits.shape
    blocks = -(-vocab_size // BLOCK)
    keys = torch.empty(rows, blocks, dtype=torch.int64, device=logits.device)
    grid = (rows, -(-blocks // BLOCKS_PER_PROGRAM))
    _kernel[grid](
        logits, keys, logits.stride(0), blocks, vocab_size, BLOCK=BLOCK, BLOCKS_AT_ONCE=BLOCKS_PER_PROGRAM, num_warps=4
    )
    return keys


def _make_kernel() -> Any:

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        logits_ptr, keys_ptr, row_stride, blocks, vocab_size, BLOCK: tl.constexpr, BLOCKS_AT_ONCE: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        numbers = tl.program_id(1) * BLOCKS_AT_ONCE + tl.arange(0, BLOCKS_AT_ONCE)
        tokens = tl.arange(0, BLOCK)[:, None] * blocks + numbers[None, :]
        is_token = (numbers[None, :] < blocks) & (tokens < vocab_size)
        values = tl.load(logits_ptr + row * row_stride + tokens, mask=is_token, other=float("-inf"))
        best = tl.max(values, 0)
        # Among equals the lowest id; padding is last of all.
        first = tl.min(tl.where((values == best[None, :]) & is_token, tokens, 0x7FFFFFFF), 0)
        bits = (best + 0.0).to(tl.int32, bitcast=True)
        ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
        key = (ordered << 32) + (0x7FFFFFFF - first).to(tl.int64)
        tl.store(keys_ptr + row * blocks + numbers, key, mask=numbers < blocks)

    return kernel


_kernel: Any = _make_kernel() if triton is not None else None
