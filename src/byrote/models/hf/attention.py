"""Attention of packed forwards: beams over their ancestors in a session's memory, chains over themselves.

On a GPU all slots attend at once, padded to a rectangle. A CPU pays for every padded lane and entry, so there each slot
attends over its own.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from byrote.models import tree_attention
from byrote.models.base import Seen, TreeBatch
from byrote.models.packing import to_device

SHAPELESS_KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels that need no plan per shape. cuDNN's are faster for beams, whose shapes repeat; it takes tens of
milliseconds to plan a new one, and the number of chains differs from step to step, as does all of an exploration."""

CAUSAL_KERNELS = [SDPBackend.FLASH_ATTENTION, *SHAPELESS_KERNELS]
"""The same where no mask is needed."""


Made = TypeVar("Made")


class Layout:
    """Index tensors of one packed forward, shared by all layers."""

    def __init__(self, batch: TreeBatch) -> None:
        self.batch = batch
        self.beams = batch.beams
        self.slots, self.lanes, self.reach = batch.ancestry.shape
        self.beam_rows = batch.beam_rows
        self._made: dict[tuple[str, int | None], Any] = {}
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
    def live_slots(self) -> list[tuple[int, int, int, int]]:
        """(row of the ancestry, slot, beams, entries in use) of every slot with beams; the batch has `reaches`."""
        slots = range(self.slots) if self.batch.rows is None else self.batch.rows.tolist()
        held = zip(slots, self.batch.beam_counts, self.batch.reaches, strict=False)
        return [(row, slot, count, reach) for row, (slot, count, reach) in enumerate(held) if count]

    def as_rectangle(self, packed: Tensor) -> Tensor:
        """Packed chains [heads, tokens, width] → [chains, heads, longest, width]; no copy for equal lengths."""
        if self.chains_are_even:
            return packed.reshape(packed.shape[0], -1, self.longest_chain, packed.shape[-1]).transpose(0, 1)
        return packed[:, self._chain_places].transpose(0, 1)

    def as_packed(self, rectangle: Tensor) -> Tensor:
        """The way back: [chains, heads, longest, width] → [tokens, heads, width]."""
        tokens = rectangle.transpose(1, 2).flatten(0, 1)
        return tokens if self.chains_are_even else tokens[self._chain_tokens]

    def _once(self, name: str, window: int | None, make: Callable[[], Made]) -> Made:
        """What `make` gives, computed once for all layers with this sliding window."""
        if (name, window) not in self._made:
            self._made[name, window] = make()
        made: Made = self._made[name, window]
        return made

    def rows(self, entries: int) -> Tensor:
        """Where each query writes, as rows of a memory flattened over slots and entries."""
        return self._once("rows", None, lambda: self.batch.slots * entries + self.batch.entries)

    def hidden(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Added to the scores: 0 where a beam attends, −inf elsewhere. [slots, 1, lanes, entries]"""

        def make() -> Tensor:
            allowed = self.sees(window)
            # Padding and wrong guesses attend to everything, so that no row of the softmax is empty.
            return _minus_infinity_outside(allowed | ~allowed.any(-1, keepdim=True), dtype)[:, None]

        return self._once("hidden", window, make)

    def sees(self, window: int | None) -> Tensor:
        """The entries that each lane attends to, within the sliding window. [rows, lanes, entries] bool"""
        if window is None:
            return self.batch.ancestry
        positions = torch.zeros_like(self.batch.ancestry[..., 0], dtype=torch.int64)
        positions[self.beam_rows, self.batch.lanes] = self.batch.positions[: self.beams]
        return self.batch.ancestry & (positions[..., None] - self.batch.entry_positions[:, None, :] < window)

    def live_entries(self, window: int | None) -> Seen:
        """The entries that some lane attends to, for the kernel."""
        if window is None and self.batch.live is not None:
            return self.batch.live
        return self._once("live", window, lambda: tree_attention.live_entries(self.sees(window), self.batch.columns))

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
        hidden = self.hidden(window, dtype)
        return self._once(
            "by slot", window, lambda: [hidden[row, 0, :count, :reach] for row, _, count, reach in self.live_slots]
        )

    def chain_hidden(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """The same for chains, causal. [1, 1, longest chain, longest chain]."""

        def make() -> Tensor:
            order = torch.arange(self.longest_chain, device=self.batch.slots.device)
            distance = order[:, None] - order
            allowed = (distance >= 0) & (distance < (window or self.longest_chain))
            return _minus_infinity_outside(allowed, dtype)[None, None]

        return self._once("chains", window, make)


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
    if columns is None:
        held = memory[:, : layout.reach]
        return held[: layout.slots] if rows is None else held.index_select(0, rows)
    slots = torch.arange(layout.slots, device=memory.device) if rows is None else rows
    return memory[slots[:, None], columns]


def _in_use_by_slot(memory: Tensor, layout: Layout) -> list[Tensor]:
    """The same for every row with beams, as far as it is in use. [heads, columns, width] each"""
    columns = layout.batch.columns
    if columns is None:
        held = memory.transpose(1, 2).unbind(0)  # all slots at once: one call instead of one per slot
        return [held[slot].narrow(1, 0, reach) for _, slot, _, reach in layout.live_slots]
    return [
        memory[slot].index_select(0, columns[row, :reach]).transpose(0, 1) for row, slot, _, reach in layout.live_slots
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
    own = torch.split_with_sizes(query, [count for _, _, count, _ in layout.live_slots], 1)
    key_of, value_of = (_in_use_by_slot(memory, layout) for memory in (keys, values))
    hidden = layout.hidden_by_slot(style.window, query.dtype)
    mixed = [style.attend_plainly(*each) for each in zip(own, key_of, value_of, hidden, strict=True)]
    return torch.cat(mixed, 1).transpose(0, 1)


def _attend_rectangle(query: Tensor, keys: Tensor, values: Tensor, layout: Layout, style: AttentionStyle) -> Tensor:
    """All slots at once, padded to a [slots, lanes] rectangle: one kernel keeps a GPU busy."""
    heads, _, width = query.shape
    padded = query.new_zeros(layout.slots, layout.lanes, heads, width)
    padded[layout.beam_rows, layout.batch.lanes] = query.transpose(0, 1)
    keys, values = (_in_use(memory, layout).transpose(1, 2) for memory in (keys, values))
    hidden = layout.hidden(style.window, query.dtype)
    with _kernels_for(query, shapes_repeat=layout.batch.columns is None):
        mixed = style.attend(padded.transpose(1, 2), keys, values, hidden).transpose(1, 2)
    return mixed[layout.beam_rows, layout.batch.lanes]


def attend_chains(query: Tensor, key: Tensor, value: Tensor, layout: Layout, style: AttentionStyle) -> Tensor:
    """Packed chains [heads, tokens, width] attend causally to themselves; padding comes last and is not attended to."""
    query, key, value = map(layout.as_rectangle, (query, key, value))
    if style.softcap is None and (style.window is None or style.window >= layout.longest_chain):
        mixed = style.attend_causally(query, key, value)
    else:
        with _kernels_for(query, shapes_repeat=False):
            mixed = style.attend(query, key, value, layout.chain_hidden(style.window, query.dtype))
    return layout.as_packed(mixed)
