"""The tree cache: which memory entries each beam may attend to, and which entries are free again.

A slot's memory is append-only in spirit: the chain (prefix and target), then one entry per surviving beam per step.
Each lane's ancestry is a row of booleans over entries. The verbatim lane walks along the chain and needs no entries of
its own. An entry beyond the chain that no live lane descends from is free and is given out again, lowest first, so that
the part of the memory in use stays short. Nothing is ever copied or reordered. Where somebody will go on from the
search of a window, its slot gives nothing out again: entries are then in the order in which beams were evaluated.
"""

import torch
from torch import Tensor


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
