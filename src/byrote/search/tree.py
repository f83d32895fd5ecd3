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

from byrote.models.base import TreeBatch, TreeModel, TreeSession
from byrote.models.memory import to_device
from byrote.models.packing import Chains, pack
from byrote.models.scoring import TokenScores, score_tokens, tokens_to_list
from byrote.policy import Kept, Policy, keep, top_tokens


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


class TreeCache:
    """Ancestry of every lane of every slot. Entry numbers are places in the session's memory of that slot."""

    def __init__(self, slots: int, lanes: int, entries: int, device: torch.device) -> None:
        self.ancestry = torch.zeros(slots, lanes, entries, dtype=torch.bool, device=device)
        self.entry_positions = torch.zeros(slots, entries, dtype=torch.int64, device=device)
        self.own_entry = torch.zeros(slots, lanes, dtype=torch.int64, device=device)
        self.free_entry = torch.zeros(slots, lanes, dtype=torch.int64, device=device)
        """Where a lane may write: its own entry if it is to be evaluated, else one that nobody sees."""
        self._order = torch.arange(entries, device=device)
        self._held = torch.zeros(slots, dtype=torch.int64, device=device)
        """Entries from the first on that are not given out again: the chain and, where all are kept, every beam's."""

    @staticmethod
    def worst_case_entries(prefix_tokens: int, suffix_tokens: int, lanes: int) -> int:
        """No slot can need more: the chain, one entry per lane for every step that is evaluated, and spare lanes."""
        return prefix_tokens + (lanes + 1) * max(suffix_tokens - 1, 1) + lanes

    def admit(self, slots: Tensor, prefix_lengths: Tensor, chain_lengths: Tensor) -> None:
        """Lane 0 of each slot is the root: it sees the whole prefix and nothing else. Other lanes are empty."""
        self.ancestry.index_fill_(0, slots, False)
        self.ancestry[slots, 0] = self._order < prefix_lengths[:, None]
        self.entry_positions[slots] = self._order
        self._held[slots] = chain_lengths

    def branch(
        self, parents: Tensor, alive: Tensor, is_verbatim: Tensor, positions: Tensor, *, keeps_all: Tensor | None = None
    ) -> Tensor:
        """Each live lane of the first slots now continues `parents` with a node of its own at `positions` [slots].
        `keeps_all` [slots], 0 or 1: the slots that give no entry out again; None if every slot does.

        Returns, per slot, one past the highest entry in use.
        """
        count = len(parents)
        ancestry = self.ancestry[:count].gather(1, parents[..., None].expand(-1, -1, self.ancestry.shape[2]))
        ancestry &= alive[..., None]
        lanes = torch.arange(parents.shape[1], device=parents.device)
        free = self._lowest_free(ancestry, lanes)
        # The verbatim node at position p is entry p of the chain. Others: lane q takes the q-th free entry.
        own = torch.where(is_verbatim, positions[:, None], free)
        slots = torch.arange(count, device=parents.device)[:, None]
        ancestry[slots, lanes, own] |= alive
        self.ancestry[:count] = ancestry
        self.own_entry[:count], self.free_entry[:count] = own, free
        held = self.entry_positions[:count].gather(1, own)
        self.entry_positions[:count] = self.entry_positions[:count].scatter(
            1, own, torch.where(alive, positions[:, None], held)
        )
        reach = (ancestry.any(1) * (self._order + 1)).amax(-1)
        if keeps_all is None:
            return reach
        # Lanes to be evaluated come first, so theirs are the lowest free entries.
        self._held[:count] += (alive & ~is_verbatim).sum(-1) * keeps_all
        # Entries of beams that died are in use too: somebody will go on from them.
        return torch.maximum(reach, self._held[:count] * keeps_all)

    def _lowest_free(self, ancestry: Tensor, lanes: Tensor) -> Tensor:
        """Per slot the lowest entries that are not held and no lane descends from, one per lane: a stable sort of
        booleans puts free ones first."""
        is_taken = ancestry.any(1) | (self._order < self._held[: len(ancestry), None])
        return is_taken.to(torch.uint8).sort(dim=-1, stable=True).indices[:, : len(lanes)]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """No slot is both a source and a target."""
        for tensor in (self.ancestry, self.entry_positions, self.own_entry, self.free_entry, self._held):
            tensor[targets] = tensor[sources]

    def check_integrity(self, slot: int, *, prefix_length: int, step: int, beams: int) -> None:
        """Every live lane sees its prefix, then exactly one entry per step, ending in an entry of its own."""
        rows = self.ancestry[slot, :beams]
        assert not self.ancestry[slot, beams:].any(), "a dead lane still holds entries"
        positions = self.entry_positions[slot]
        for lane in range(beams):
            seen = positions[rows[lane]].sort().values.tolist()
            assert seen == list(range(prefix_length + step)), f"lane {lane} sees positions {seen}"
            own = int(self.own_entry[slot, lane])
            assert rows[:, own].sum() == 1, "a fresh entry must belong to one lane"
            assert rows[lane, own], "a lane must see its own entry"
            assert int(positions[own]) == prefix_length + step - 1, "a lane's own entry is its newest"


CPU_ENTRY_STEP = 32
GPU_ENTRY_STEP = 64


class Shape(NamedTuple):
    slots: int
    lanes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Shapes:
    """How the shapes of one stream are rounded; `most` is the largest there is memory for."""

    most: Shape
    entry_step: int
    repeats: bool
    """Whether slots and lanes are rounded too."""

    @staticmethod
    def of(model: TreeModel, most: Shape) -> "Shapes":
        on_gpu = model.device.type == "cuda"
        return Shapes(most, GPU_ENTRY_STEP if on_gpu else CPU_ENTRY_STEP, repeats=on_gpu)

    def rounded_entries(self, entries: int) -> int:
        return min(self.most.entries, -(-entries // self.entry_step) * self.entry_step)

    def rounded(self, slots: int, lanes: int, entries: int) -> Shape:
        """The least shape that holds these and repeats: all lanes, and all slots or a half, a quarter … of them."""
        if not self.repeats:
            return Shape(slots, lanes, self.rounded_entries(entries))
        held = self.most.slots
        while held > 1 and -(-held // 2) >= slots:
            held = -(-held // 2)
        return Shape(held, self.most.lanes, self.rounded_entries(entries))
