"""Attention of packed forwards: beams over their ancestors in a session's memory, chains over themselves.

On a GPU all slots attend at once, padded to a rectangle. A CPU pays for every padded lane and entry, so there each slot
attends over its own.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from byrote.models import tree_attention
from byrote.models.base import Seen, TreeBatch
from byrote.models.memory import to_device

SHAPELESS_KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels that need no plan per shape. cuDNN's are faster for beams, whose shapes repeat; it takes tens of
milliseconds to plan a new one, and the number of chains differs from step to step, as does all of an exploration."""

CAUSAL_KERNELS = [SDPBackend.FLASH_ATTENTION, *SHAPELESS_KERNELS]
"""The same where no mask is needed."""


class Layout:
    """Index tensors of one packed forward, shared by all layers."""

    def __init__(self, batch: TreeBatch) -> None:
        self.batch = batch
        self.beams = batch.beams
        self.slots, self.lanes, self.reach = batch.ancestry.shape
        self.is_rectangular = self.beams == self.slots * self.lanes
        self.beam_rows = batch.beam_rows
        self._rows: Tensor | None = None
        self._sees: dict[int | None, Tensor] = {}
        self._live: dict[int | None, Seen] = {}
        self._hidden: dict[int | None, Tensor] = {}
        self._chain_hidden: dict[int | None, Tensor] = {}
        self._hidden_by_slot: dict[int | None, list[Tensor]] = {}
        self.longest_chain = max(batch.prefix_lengths, default=0)
        self.chains_are_even = len(set(batch.prefix_lengths)) <= 1
        if not self.chains_are_even:
            lengths = torch.tensor(batch.prefix_lengths)[:, None]
            order = torch.arange(self.longest_chain)
            starts = lengths.cumsum(0) - lengths
            places = starts + torch.minimum(order, lengths - 1)  # [chains, longest]; padding repeats the last token
            (tokens,) = torch.nonzero((order < lengths).flatten(), as_tuple=True)
            self._chain_places = to_device(places, batch.slots.device)
            self._chain_tokens = to_device(tokens, batch.slots.device)
            """Where the packed tokens are in the padded rectangle, flattened."""

    @cached_property
    def live_counts(self) -> list[int]:
        return [count for count in self.batch.beam_counts if count]

    @cached_property
    def live_reaches(self) -> list[tuple[int, int]]:
        """(row, entries in use) of every slot with beams, where the batch has `reaches`."""
        held = zip(self.batch.beam_counts, self.batch.reaches, strict=bool(self.batch.reaches))
        return [(row, reach) for row, (count, reach) in enumerate(held) if count]

    def as_rectangle(self, packed: Tensor) -> Tensor:
        """Packed chains [heads, tokens, width] → [chains, heads, longest, width]; no copy for equal lengths."""
        if self.chains_are_even:
            return packed.reshape(packed.shape[0], -1, self.longest_chain, packed.shape[-1]).transpose(0, 1)
        return packed[:, self._chain_places].transpose(0, 1)

    def as_packed(self, rectangle: Tensor) -> Tensor:
        """The way back: [chains, heads, longest, width] → [tokens, heads, width]."""
        tokens = rectangle.transpose(1, 2).flatten(0, 1)
        return tokens if self.chains_are_even else tokens[self._chain_tokens]

    def rows(self, entries: int) -> Tensor:
        """Where each query writes, as rows of a memory flattened over slots and entries."""
        if self._rows is None:
            self._rows = self.batch.slots * entries + self.batch.entries
        return self._rows

    def hidden(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Added to the scores: 0 where a beam attends, −inf elsewhere. [slots, 1, lanes, entries]"""
        if window not in self._hidden:
            allowed = self.sees(window)
            # Padding and wrong guesses attend to everything, so that no row of the softmax is empty.
            allowed = allowed | ~allowed.any(-1, keepdim=True)
            self._hidden[window] = _minus_infinity_outside(allowed, dtype)[:, None]
        return self._hidden[window]

    def sees(self, window: int | None) -> Tensor:
        """The entries that each lane attends to, within the sliding window. [rows, lanes, entries] bool"""
        if window not in self._sees:
            allowed = self.batch.ancestry
            if window is not None:
                positions = torch.zeros_like(allowed[..., 0], dtype=torch.int64)
                positions[self.beam_rows, self.batch.lanes] = self.batch.positions[: self.beams]
                distance = positions[..., None] - self.batch.entry_positions[:, None, :]
                allowed = allowed & (distance < window)
            self._sees[window] = allowed
        return self._sees[window]

    def live_entries(self, window: int | None) -> Seen:
        """The entries that some lane attends to, for the kernel; computed once for all layers."""
        if window is None and self.batch.live is not None:
            return self.batch.live
        if window not in self._live:
            self._live[window] = tree_attention.live_entries(self.sees(window), self.batch.columns)
        return self._live[window]

    @cached_property
    def packing(self) -> tree_attention.Packing:
        """Where the beams of each slot are in the packed row; one transfer for all layers."""
        counts = torch.tensor(self.batch.beam_counts)
        slots = self.batch.rows
        packed = to_device(
            torch.cat([counts.cumsum(0) - counts, counts, torch.arange(len(counts))]), self.beam_rows.device
        )
        starts, there, order = torch.split_with_sizes(packed, [len(counts)] * 3)
        longest = max(self.batch.beam_counts)
        return tree_attention.Packing(starts, there, order if slots is None else slots, longest)

    def hidden_by_slot(self, window: int | None, dtype: torch.dtype) -> list[Tensor]:
        """The same, cut to the live lanes and entries of every slot with beams. [lanes, entries] each."""
        if window not in self._hidden_by_slot:
            hidden = self.hidden(window, dtype)
            self._hidden_by_slot[window] = [
                hidden[row, 0, :count, :reach]
                for count, (row, reach) in zip(self.live_counts, self.live_reaches, strict=True)
            ]
        return self._hidden_by_slot[window]

    @cached_property
    def slot_of_row(self) -> list[int]:
        """The slot of every row of the ancestry, on the host."""
        rows = self.batch.rows
        return list(range(self.slots)) if rows is None else rows.tolist()

    def chain_hidden(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """The same for chains, causal. [1, 1, longest chain, longest chain]."""
        if window not in self._chain_hidden:
            order = torch.arange(self.longest_chain, device=self.batch.slots.device)
            distance = order[:, None] - order[None, :]
            allowed = distance >= 0 if window is None else (distance >= 0) & (distance < window)
            self._chain_hidden[window] = _minus_infinity_outside(allowed, dtype)[None, None]
        return self._chain_hidden[window]


def _minus_infinity_outside(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -math.inf)


class AttentionStyle:
    """How one layer turns scores into weights: scale, soft cap, sliding window."""

    def __init__(self, scaling: float | None, softcap: float | None, window: int | None) -> None:
        self.scaling, self.softcap, self.window = scaling, softcap, window

    def attend(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
        """`query` [n, heads, q, width] over `key` [n, key-value heads, e, width]; `hidden` broadcasts to [n, 1, q, e].

        Heads that share a key are folded into the query dimension, so keys and values are never repeated.
        """
        count, heads, length, _ = query.shape
        groups = heads // key.shape[1]
        if groups > 1:
            query = query.reshape(count, key.shape[1], groups * length, -1)
            hidden = hidden.expand(count, 1, length, -1).repeat(1, 1, groups, 1)
        if self.softcap is None:
            mixed = functional.scaled_dot_product_attention(query, key, value, hidden, scale=self.scaling)
        else:
            scores = self._capped((query @ key.transpose(-1, -2)).float() * self.scale(query))
            mixed = (scores + hidden).softmax(-1).to(value.dtype) @ value
        return mixed if groups == 1 else mixed.reshape(count, heads, length, -1)

    def is_causal_over(self, length: int) -> bool:
        """Whether every query of a chain of this length sees all before it, at scores as they are."""
        return self.softcap is None and (self.window is None or self.window >= length)

    def attend_causally(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """`query` [n, heads, length, width] over `key` [n, key-value heads, length, width], without any mask."""
        groups = query.shape[1] // key.shape[1]
        if groups > 1 and query.is_cuda and query.dtype == torch.float32:
            # No fused kernel of a GPU takes grouped heads in float32; the unfused one holds all scores at once.
            key, value = (heads.repeat_interleave(groups, 1) for heads in (key, value))
            groups = 1
        with sdpa_kernel(CAUSAL_KERNELS) if query.is_cuda else nullcontext():
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=self.scaling, enable_gqa=groups > 1
            )

    def attend_plainly(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
        """The same for n = 1 in float32 as two products: for some twenty queries faster on a CPU than a fused kernel.

        `query` [heads, q, width], `key` [key-value heads, e, width], `hidden` [q, e].
        """
        heads, length, _ = query.shape
        groups = heads // key.shape[0]
        if groups > 1:
            query = query.reshape(key.shape[0], groups * length, -1)
            hidden = hidden.repeat(groups, 1)
        if self.softcap is None:
            # Scaled and hidden by the product itself: two threads meet after every operation.
            scores = torch.baddbmm(hidden, query, key.transpose(1, 2), alpha=self.scale(query))
        else:
            scores = self._capped(torch.bmm(query * self.scale(query), key.transpose(1, 2))).add_(hidden)
        mixed = torch.bmm(scores.softmax(-1), value)
        return mixed if groups == 1 else mixed.reshape(heads, length, -1)

    def scale(self, query: Tensor) -> float:
        return self.scaling if self.scaling is not None else float(query.shape[-1] ** -0.5)

    def _capped(self, scores: Tensor) -> Tensor:
        assert self.softcap is not None
        return torch.tanh(scores / self.softcap) * self.softcap


def _kernels_for(query: Tensor, *, shapes_repeat: bool) -> AbstractContextManager[None]:
    return sdpa_kernel(SHAPELESS_KERNELS) if query.is_cuda and not shapes_repeat else nullcontext()


def _in_use(memory: Tensor, layout: Layout) -> Tensor:
    """Memory of the ancestry's columns. [rows, columns, heads, width]"""
    columns, rows = layout.batch.columns, layout.batch.rows
    if columns is None and rows is None:
        return memory[: layout.slots, : layout.reach]
    if columns is None:
        assert rows is not None
        return memory[:, : layout.reach].index_select(0, rows)
    slots = torch.arange(layout.slots, device=memory.device) if rows is None else rows
    return memory[slots[:, None], columns]


def _in_use_by_slot(memory: Tensor, layout: Layout) -> list[Tensor]:
    """The same for every row with beams, as far as it is in use. [heads, columns, width] each"""
    columns, slots = layout.batch.columns, layout.slot_of_row
    if columns is None:
        held = memory.transpose(1, 2).unbind(0)  # all slots at once: one call instead of one per slot
        return [held[slots[row]].narrow(1, 0, reach) for row, reach in layout.live_reaches]
    return [
        memory[slots[row]].index_select(0, columns[row, :reach]).transpose(0, 1) for row, reach in layout.live_reaches
    ]


def attend_beams(query: Tensor, keys: Tensor, values: Tensor, layout: Layout, style: AttentionStyle) -> Tensor:
    """Packed beams [heads, beams, width] → [beams, heads, width]."""
    if style.softcap is None and tree_attention.is_available(query):
        seen = layout.live_entries(style.window)
        return tree_attention.attend(query, keys, values, seen, layout.packing, scale=style.scale(query))
    if layout.batch.reaches and query.device.type == "cpu" and query.dtype == torch.float32:
        return _attend_slot_by_slot(query, keys, values, layout, style)
    return _attend_rectangle(query, keys, values, layout, style)


def _attend_slot_by_slot(query: Tensor, keys: Tensor, values: Tensor, layout: Layout, style: AttentionStyle) -> Tensor:
    """Each slot over its own live lanes and entries: a CPU would pay for every padded one."""
    own = torch.split_with_sizes(query, layout.live_counts, 1)
    key_of, value_of = (_in_use_by_slot(memory, layout) for memory in (keys, values))
    hidden = layout.hidden_by_slot(style.window, query.dtype)
    mixed = [style.attend_plainly(*each) for each in zip(own, key_of, value_of, hidden, strict=True)]
    return torch.cat(mixed, 1).transpose(0, 1)


def _attend_rectangle(query: Tensor, keys: Tensor, values: Tensor, layout: Layout, style: AttentionStyle) -> Tensor:
    """All slots at once, padded to a [slots, lanes] rectangle: one kernel keeps a GPU busy."""
    heads, _, width = query.shape
    slots, lanes = layout.slots, layout.lanes
    if layout.is_rectangular:
        rectangle = query.view(heads, slots, lanes, width).transpose(0, 1)
    else:
        padded = query.new_zeros(slots, lanes, heads, width)
        padded[layout.beam_rows, layout.batch.lanes] = query.transpose(0, 1)
        rectangle = padded.transpose(1, 2)
    keys, values = (_in_use(memory, layout).transpose(1, 2) for memory in (keys, values))
    hidden = layout.hidden(style.window, query.dtype)
    with _kernels_for(query, shapes_repeat=layout.batch.columns is None):
        mixed = style.attend(rectangle, keys, values, hidden).transpose(1, 2)
    if layout.is_rectangular:
        return mixed.reshape(slots * lanes, heads, -1)
    return mixed[layout.beam_rows, layout.batch.lanes]


def attend_chains(query: Tensor, key: Tensor, value: Tensor, layout: Layout, style: AttentionStyle) -> Tensor:
    """Packed chains [heads, tokens, width] attend causally to themselves; padding comes last and is not attended to."""
    query, key, value = map(layout.as_rectangle, (query, key, value))
    if style.is_causal_over(layout.longest_chain):
        mixed = style.attend_causally(query, key, value)
    else:
        with _kernels_for(query, shapes_repeat=False):
            mixed = style.attend(query, key, value, layout.chain_hidden(style.window, query.dtype))
    return layout.as_packed(mixed)
