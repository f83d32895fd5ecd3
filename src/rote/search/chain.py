"""A window's first forward: prefix and target once, as a chain in its tree.

The chain serves everyone. Its logits give the probability and rank of every target token under any number of policies,
and what the policy keeps after each of them; its keys and values are what greedy decoding and the search go on from.
So the verbatim path costs a search nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rote.models.base import TreeBatch, TreeSession
from rote.models.memory import to_device
from rote.models.packing import Chains, pack
from rote.models.scoring import TokenScores, score_tokens, tokens_to_list
from rote.policy import Kept, Policy, keep, top_tokens


class TokenPair(NamedTuple):
    """A window as token ids."""

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]

    @property
    def chain(self) -> tuple[int, ...]:
        """What is evaluated: everything but the last target token, after which nothing is asked."""
        return self.prefix_ids + self.suffix_ids[:-1]


TAKEN_TOGETHER = 32
"""Chains that are copied at once; for a moment their copy exists beside them."""


@dataclass(frozen=True, slots=True)
class Chain:
    """An evaluated window: where its states are, and what the policy keeps after the prefix and each target token.

    Valid until somebody else writes to that slot of the session.
    """

    session: TreeSession
    slot: int
    kept: Kept  # [suffix, kept]


class FirstForward(NamedTuple):
    """What the chains of some windows say; suffixes shorter than the longest are padded at the end."""

    kept: Kept  # [windows, longest suffix, kept]
    scores: TokenScores | None
    """Of every target token of every window, one after the other; present when policies were given."""


class Listing(NamedTuple):
    """Which tokens a search lists after each node: the policy's, at most `cap` of them."""

    policy: Policy
    cap: int | None

    def width(self, vocab_size: int) -> int:
        return min(self.policy.width(vocab_size), self.cap or vocab_size)


def evaluate_chains(
    session: TreeSession,
    pairs: Sequence[TokenPair],
    slots: Sequence[int],
    listing: Listing,
    *,
    device: torch.device,
    policies: Sequence[Policy] = (),
    with_standard: bool = False,
) -> FirstForward:
    """Evaluate each window in its slot of the session, from entry 0 on, and score its target under `policies`; with
    `with_standard`, against the rest of the vocabulary too."""
    batch = _batch(pairs, slots, device)
    targets = to_device(torch.tensor([token for pair in pairs for token in pair.suffix_ids]), device)
    kept: list[Kept] = []
    scores: list[TokenScores] = []
    first = 0
    for logits in session.forward_in_chunks(batch):
        top = top_tokens(logits, max(listing.width(logits.shape[-1]), tokens_to_list(policies, logits.shape[-1])))
        kept.append(keep(logits, listing.policy, cap=listing.cap, top=top))
        if policies:
            wanted = targets[first : first + len(logits)]
            scores.append(score_tokens(logits, wanted, policies, top=top, with_standard=with_standard))
        first += len(logits)
    flat = Kept(*(torch.cat(parts) for parts in zip(*kept, strict=True)))
    lengths = [len(pair.suffix_ids) for pair in pairs]
    return FirstForward(_padded(flat, lengths), _joined(scores) if policies else None)


def copy_states(chains: Sequence[tuple[int, Chain]], session: TreeSession, *, entries: Callable[[int], int]) -> None:
    """What others have evaluated of these chains, in slots of `session`."""

    def kind(pair: tuple[int, Chain]) -> tuple[int, int]:
        return id(pair[1].session), entries(pair[0])

    for _, alike in groupby(sorted(chains, key=kind), key=kind):
        waiting = list(alike)
        while some := waiting[:TAKEN_TOGETHER]:
            del waiting[:TAKEN_TOGETHER]
            stored = some[0][1].session.copy_out([chain.slot for _, chain in some], entries(some[0][0]))
            session.copy_in([place for place, _ in some], stored)


def _batch(pairs: Sequence[TokenPair], slots: Sequence[int], device: torch.device) -> TreeBatch:
    """The chains; what follows the prefix and every target token but the last is wanted."""
    chains = Chains(slots, [pair.chain for pair in pairs])
    ends = np.cumsum(chains.lengths)
    outputs = [np.arange(end - len(pair.suffix_ids), end) for end, pair in zip(ends, pairs, strict=True)]
    return pack(chains=chains, outputs=np.concatenate(outputs), device=device)


def _padded(flat: Kept, lengths: Sequence[int]) -> Kept:
    if len(set(lengths)) == 1:
        return Kept(*(tensor.reshape(len(lengths), lengths[0], *tensor.shape[1:]) for tensor in flat))
    return Kept(*(_stack(tensor, lengths) for tensor in flat))


def _stack(tensor: Tensor, lengths: Sequence[int]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(torch.split_with_sizes(tensor, list(lengths))), batch_first=True)


def _joined(parts: Sequence[TokenScores]) -> TokenScores:
    standard = [part.standard_scores for part in parts if part.standard_scores is not None]
    return TokenScores(
        torch.cat([part.log_probs for part in parts], -1),
        torch.cat([part.ranks for part in parts]),
        torch.cat([part.model_log_probs for part in parts]),
        torch.cat(standard) if standard else None,
    )
