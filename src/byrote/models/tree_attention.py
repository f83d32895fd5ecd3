"""Attention of beams over a session's memory as one GPU kernel: it reads only the entries that some beam attends to.

A program serves one slot and one key-value head. It walks over the slot's live entries (those of some lane) in
blocks and keeps a running softmax in float32. No key or value is padded, gathered or copied: live entries are addressed
through a list of columns that is made once for all layers. Which query attends to an entry is a bit of a word per
entry: a byte for each pair would take as many loads as the keys and values do. `hf/attention.py` has the plain version,
which judges this one.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byrote.models.base import Seen

try:
    import triton
    import triton.language as tl
except ImportError:  # pragma: no cover: a machine without a GPU build of torch
    triton = None

LARGEST_WIDTH = 256
QUERY_BLOCKS = (16, 32)
"""Queries that a program may serve: few for greedy decoding, more for beams."""
ENTRY_BLOCK = 32
WARPS = 1
STAGES = 3
"""The fastest of 13 combinations on an H200, for beams and for greedy steps."""
WORD = 32
"""Lanes in a word of `Seen.bits`."""


class Packing(NamedTuple):
    """Where the queries of each row of the ancestry are, and which slot they read; all on the device. The first query
    of a row is lane 0, the next lane 1, and so on."""

    starts: Tensor  # [rows] int64: first packed query
    counts: Tensor  # [rows] int64
    slots: Tensor  # [rows] int64
    longest: int
    """Most queries of a slot."""


def live_entries(sees: Tensor, columns: Tensor | None) -> Seen:
    """`sees` [rows, lanes, entries in use] as lists; column e is entry e, or `columns[:, e]` where that is given."""
    bits = as_bits(sees)
    is_live = (bits != 0).any(1)
    order = is_live.logical_not().to(torch.uint8).sort(dim=-1, stable=True).indices
    packed = bits.gather(2, order[:, None].expand_as(bits))
    found = order if columns is None else columns.gather(1, order)
    return Seen(found.to(torch.int32), is_live.sum(-1), packed)


def as_bits(sees: Tensor) -> Tensor:
    """[rows, lanes, entries] bool → [rows, words, entries] int32"""
    shifts = torch.arange(WORD, device=sees.device)[:, None]
    words = [(part.long() << shifts[: part.shape[1]]).sum(1) for part in torch.split(sees, WORD, 1)]
    return torch.stack(words, 1).to(torch.int32)  # a sum of 2³¹ or more becomes negative: the bits are the same


def is_available(query: Tensor) -> bool:
    """Whether the kernel can serve queries of this kind on this device."""
    return (
        triton is not None
        and query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.shape[-1] <= LARGEST_WIDTH
    )


def attend(query: Tensor, keys: Tensor, values: Tensor, seen: Seen, packing: Packing, *, scale: float) -> Tensor:
    """Packed `query` [heads, queries, width] over memory [slots, entries, key-value heads, width].

    Returns [queries, heads, value width].
    """
    heads, count, width = query.shape
    groups = heads // keys.shape[2]
    out = torch.empty(count, heads, values.shape[-1], dtype=query.dtype, device=query.device)
    most = packing.longest * groups
    block = next((size for size in QUERY_BLOCKS if most <= size), QUERY_BLOCKS[-1])
    # The heads of a slot side by side, since their keys are: what one program reads is near to what the next does.
    grid = (keys.shape[2], len(packing.starts), -(-most // block))
    _attend[grid](
        query,
        keys,
        values,
        seen.bits,
        out,
        packing.starts,
        packing.counts,
        packing.slots,
        seen.columns,
        seen.counts,
        *query.stride(),
        *keys.stride(),
        *values.stride(),
        *seen.bits.stride(),
        *out.stride(),
        seen.columns.stride(0),
        scale * math.log2(math.e),
        seen.bits.shape[1],
        GROUPS=groups,
        WIDTH=width,
        VALUE_WIDTH=values.shape[-1],
        QUERY_BLOCK=block,
        ENTRY_BLOCK=ENTRY_BLOCK,
        WIDTH_BLOCK=triton.next_power_of_2(max(16, width)),
        VALUE_BLOCK=triton.next_power_of_2(max(16, values.shape[-1])),
        num_warps=WARPS,
        num_stages=STAGES,
    )
    return out


def _define() -> Any:
    """The kernel, where there is something to compile it with."""

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        query_ptr, keys_ptr, values_ptr, bits_ptr, out_ptr, starts_ptr, counts_ptr, slots_ptr, columns_ptr, live_ptr,
        query_head, query_place, query_width,
        keys_slot, keys_entry, keys_head, keys_width,
        values_slot, values_entry, values_head, values_width,
        bits_row, bits_word, bits_entry,
        out_place, out_head, out_width,
        columns_row,
        scale, words,
        GROUPS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
        QUERY_BLOCK: tl.constexpr, ENTRY_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    ):  # fmt: skip
        key_head = tl.program_id(0)
        row = tl.program_id(1)
        count = tl.load(counts_ptr + row)
        first_query = tl.program_id(2) * QUERY_BLOCK
        if first_query >= count * GROUPS:
            return
        start = tl.load(starts_ptr + row)
        slot = tl.load(slots_ptr + row)
        # Heads that share a key are queries of the same program.
        queries = first_query + tl.arange(0, QUERY_BLOCK)
        is_query = queries < count * GROUPS
        places = start + queries // GROUPS
        heads = key_head * GROUPS + queries % GROUPS
        lanes = queries // GROUPS
        first_word = first_query // GROUPS // 32  # WORD
        wide = tl.arange(0, WIDTH_BLOCK)
        is_wide = wide < WIDTH
        value_wide = tl.arange(0, VALUE_BLOCK)
        is_value_wide = value_wide < VALUE_WIDTH
        query = tl.load(
            query_ptr + heads[:, None] * query_head + places[:, None] * query_place + wide[None, :] * query_width,
            mask=is_query[:, None] & is_wide[None, :],
            other=0.0,
        )
        largest = tl.full([QUERY_BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([QUERY_BLOCK], tl.float32)
        mixed = tl.zeros([QUERY_BLOCK, VALUE_BLOCK], tl.float32)
        live = tl.load(live_ptr + row).to(tl.int32)
        # Within a slot 32 bits address everything, and such arithmetic is a good part of the work.
        own_keys = keys_ptr + slot * keys_slot + key_head * keys_head
        own_values = values_ptr + slot * values_slot + key_head * values_head
        own_columns = columns_ptr + row * columns_row
        own_bits = bits_ptr + row * bits_row + first_word * bits_word
        for first in range(0, live, ENTRY_BLOCK):
            places_live = first + tl.arange(0, ENTRY_BLOCK)
            is_live = places_live < live
            entries = tl.load(own_columns + places_live, mask=is_live, other=0)
            word = tl.load(own_bits + places_live * bits_entry, mask=is_live, other=0)[None, :]
            if QUERY_BLOCK % GROUPS:  # the lanes of a program may lie in two words
                is_second = is_live & (first_word + 1 < words)
                second = tl.load(own_bits + bits_word + places_live * bits_entry, mask=is_second, other=0)
                word = tl.where((lanes // 32 > first_word)[:, None], second[None, :], word)
            seen = (word >> (lanes % 32)[:, None]) & 1
            key = tl.load(
                own_keys + entries[:, None] * keys_entry + wide[None, :] * keys_width,
                mask=is_live[:, None] & is_wide[None, :],
                other=0.0,
            )
            value = tl.load(
                own_values + entries[:, None] * values_entry + value_wide[None, :] * values_width,
                mask=is_live[:, None] & is_value_wide[None, :],
                other=0.0,
            )
            scores = tl.where(seen > 0, tl.dot(query, tl.trans(key)) * scale, float("-inf"))
            higher = tl.maximum(largest, tl.max(scores, 1))
            # A query that has seen nothing yet has no largest score to subtract.
            reference = tl.where(higher == float("-inf"), 0.0, higher)
            weights = tl.exp2(scores - reference[:, None])
            shrink = tl.exp2(largest - reference)
            total = total * shrink + tl.sum(weights, 1)
            mixed = mixed * shrink[:, None] + tl.dot(weights.to(value.dtype), value)
            largest = higher
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(
            out_ptr + places[:, None] * out_place + heads[:, None] * out_head + value_wide[None, :] * out_width,
            mixed.to(out_ptr.dtype.element_ty),
            mask=is_query[:, None] & is_value_wide[None, :],
        )

    return kernel


_attend: Any = _define() if triton is not None else None
