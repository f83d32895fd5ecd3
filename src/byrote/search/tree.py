"""A window's tree in the memory of a session: the chain it starts with, and the entries of the beams that branch off.

The chain is a window's first forward: prefix and target once. Its logits give the probability and rank of every target
token under any number of policies, and what the policy keeps after each of them; greedy decoding and the search
continue from its keys and values. So the verbatim path costs a search nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from byrote.models.base import TreeSession
from byrote.models.packing import Chains, pack, to_device
from byrote.models.scoring import TokenScores, score_tokens, tokens_to_list
from byrote.policy import Kept, Policy, keep, top_tokens

CPU_ENTRY_STEP = 32
GPU_ENTRY_STEP = 64


class TokenPair(NamedTuple):
    """A window as token ids."""

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]

    @property
    def chain(self) -> tuple[int, ...]:
        """What is evaluated: everything but the last target token, whose successors are not needed."""
        return self.prefix_ids + self.suffix_ids[:-1]


@dataclass(frozen=True, slots=True)
class Chain:
    """An evaluated window: where its states are, and what the policy keeps after the prefix and each target token.

    Valid until that slot of the session is written again.
    """

    session: TreeSession
    slot: int
    kept: Kept  # [suffix, kept]


class FirstForward(NamedTuple):
    """Results of the chains of some windows; suffixes shorter than the longest are padded at the end."""

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
    chains = Chains(slots, [pair.chain for pair in pairs])
    ends = np.cumsum(chains.lengths)
    outputs = [np.arange(end - len(pair.suffix_ids), end) for end, pair in zip(ends, pairs, strict=True)]
    batch = pack(chains=chains, outputs=np.concatenate(outputs), device=device)
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
    return FirstForward(Kept(*(_by_window(part, lengths) for part in flat)), _joined(scores) if policies else None)


def _by_window(flat: Tensor, lengths: Sequence[int]) -> Tensor:
    """Rows of all windows one after the other, as [windows, longest, …]."""
    if len(set(lengths)) == 1:
        return flat.reshape(len(lengths), lengths[0], *flat.shape[1:])
    return torch.nn.utils.rnn.pad_sequence(list(torch.split_with_sizes(flat, list(lengths))), batch_first=True)


def _joined(parts: Sequence[TokenScores]) -> TokenScores:
    standard = [part.standard_scores for part in parts if part.standard_scores is not None]
    return TokenScores(
        torch.cat([part.log_probs for part in parts], -1),
        torch.cat([part.ranks for part in parts]),
        torch.cat([part.model_log_probs for part in parts]),
        torch.cat(standard) if standard else None,
    )


class VerbatimPaths:
    """What the policy keeps along the verbatim path of every slot. `width`: tokens that are listed after a node."""

    def __init__(self, slots: int, longest: int, width: int, device: torch.device) -> None:
        self._width, self._device, self._longest = width, device, longest
        self._kept = self._nothing(slots, longest)  # [slots, longest suffix, kept]

    def put(self, slots: Sequence[int], kept: Kept) -> None:
        places = to_device(torch.tensor(slots), self._device)
        for ours, theirs in zip(self._kept, kept, strict=True):
            ours[places, : theirs.shape[1]] = theirs

    def move(self, sources: Tensor, targets: Tensor) -> None:
        for part in self._kept:
            part[targets] = part[sources]

    def next(self, is_verbatim: Tensor, step: Tensor) -> Kept:
        """What is kept after lanes on a verbatim path, in a tensor for all lanes [slots, lanes] of the first slots."""
        slots = torch.arange(len(step), device=self._device)
        # A window that has just ended has no next step; its rows are not used.
        steps = step.clamp(max=self._longest - 1)
        kept = self._nothing(*is_verbatim.shape)
        for ours, known in zip(kept, self._kept, strict=True):
            where = is_verbatim.view(*is_verbatim.shape, *(1,) * (ours.dim() - 2))
            torch.where(where, known[slots, steps][:, None], ours, out=ours)
        return kept

    def _nothing(self, rows: int, columns: int) -> Kept:
        return Kept(
            torch.zeros(rows, columns, self._width, dtype=torch.int64, device=self._device),
            torch.full((rows, columns, self._width), -math.inf, dtype=torch.float64, device=self._device),
            torch.zeros(rows, columns, dtype=torch.float64, device=self._device),
        )


class TreeCache:
    """Ancestry of every lane of every slot. Entry numbers are places in the session's memory of that slot."""

    def __init__(self, slots: int, lanes: int, entries: int, device: torch.device) -> None:
        self.ancestry = torch.zeros(slots, lanes, entries, dtype=torch.bool, device=device)
        self.entry_positions = torch.zeros(slots, entries, dtype=torch.int64, device=device)
        self.own_entry = torch.zeros(slots, lanes, dtype=torch.int64, device=device)
        """Where the newest token of each lane is written."""
        self._order = torch.arange(entries, device=device)
        self._reserved = torch.zeros(slots, dtype=torch.int64, device=device)
        """Entries from the first on that are not reused: the chain and, where all are kept, every beam's."""

    @staticmethod
    def worst_case_entries(prefix_tokens: int, suffix_tokens: int, lanes: int) -> int:
        """No slot can need more: the chain, one entry per lane for every step that is evaluated, and spare lanes."""
        return prefix_tokens + (lanes + 1) * max(suffix_tokens - 1, 1) + lanes

    def admit(self, slots: Tensor, prefix_lengths: Tensor, chain_lengths: Tensor) -> None:
        """Lane 0 of each slot is the root: it sees the whole prefix and nothing else. Other lanes are empty."""
        self.ancestry.index_fill_(0, slots, False)
        self.ancestry[slots, 0] = self._order < prefix_lengths[:, None]
        self.entry_positions[slots] = self._order
        self._reserved[slots] = chain_lengths

    def branch(
        self, parents: Tensor, alive: Tensor, is_verbatim: Tensor, positions: Tensor, *, keeps_all: bool = False
    ) -> Tensor:
        """Each live lane of the first slots now continues `parents` with a node of its own at `positions` [slots].
        With `keeps_all` no entry is used again.

        Returns, per slot, one past the highest entry in use.
        """
        count = len(parents)
        ancestry = self.ancestry[:count].gather(1, parents[..., None].expand(-1, -1, self.ancestry.shape[2]))
        ancestry &= alive[..., None]
        lanes = torch.arange(parents.shape[1], device=parents.device)
        # The lowest entries that are not reserved and no lane descends from: a stable sort of booleans puts them first.
        is_taken = ancestry.any(1) | (self._order < self._reserved[:count, None])
        free = is_taken.to(torch.uint8).sort(dim=-1, stable=True).indices[:, : len(lanes)]
        # The verbatim node at position p is entry p of the chain. Others: lane q takes the q-th free entry.
        own = torch.where(is_verbatim, positions[:, None], free)
        slots = torch.arange(count, device=parents.device)[:, None]
        ancestry[slots, lanes, own] |= alive
        self.ancestry[:count], self.own_entry[:count] = ancestry, own
        held = self.entry_positions[:count].gather(1, own)
        self.entry_positions[:count] = self.entry_positions[:count].scatter(
            1, own, torch.where(alive, positions[:, None], held)
        )
        reach = (ancestry.any(1) * (self._order + 1)).amax(-1)
        if not keeps_all:
            return reach
        # Lanes to be evaluated come first, so theirs are the lowest free entries.
        self._reserved[:count] += (alive & ~is_verbatim).sum(-1)
        # Entries of beams that died are in use too: their states are returned.
        return torch.maximum(reach, self._reserved[:count])

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """No slot is both a source and a target."""
        for tensor in (self.ancestry, self.entry_positions, self.own_entry, self._reserved):
            tensor[targets] = tensor[sources]


class Shape(NamedTuple):
    slots: int
    lanes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Shapes:
    """How the shapes of a search's forwards are rounded, so that they repeat; `most` is the largest that fits."""

    most: Shape
    on_gpu: bool
    """A GPU repeats shapes whole: slots and lanes are rounded too."""

    def rounded_entries(self, entries: int) -> int:
        step = GPU_ENTRY_STEP if self.on_gpu else CPU_ENTRY_STEP
        return min(self.most.entries, -(-entries // step) * step)

    def rounded(self, slots: int, lanes: int, entries: int) -> Shape:
        """The least shape that holds these and repeats: all lanes, and all slots or a half, a quarter … of them."""
        if not self.on_gpu:
            return Shape(slots, lanes, self.rounded_entries(entries))
        held = self.most.slots
        while held > 1 and -(-held // 2) >= slots:
            held = -(-held // 2)
        return Shape(held, self.most.lanes, self.rounded_entries(entries))
