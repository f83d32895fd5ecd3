"""The tree-attention kernel against plain attention over the same memory, and how long both take; needs a GPU.

PYTHONPATH=src:bench python bench/tree_attention.py
"""

import json
import time
from typing import Any

import torch

from byrote.models import tree_attention
from byrote.models.base import TreeBatch
from byrote.models.hf import attention as hf_attention


def make_batch(
    slots: int,
    lanes: int,
    entries: int,
    *,
    share: float,
    memory_entries: int,
    rows: bool = False,
    columns: bool = False,
) -> TreeBatch:
    generator = torch.Generator().manual_seed(slots + lanes)
    counts = torch.randint(1, lanes + 1, (slots,), generator=generator)
    counts[0] = lanes
    beams = int(counts.sum())
    sees = torch.rand(slots, lanes, entries, generator=generator) < share
    sees[..., 0] = True
    slot_ids = torch.arange(slots) * 2 if rows else torch.arange(slots)
    order = torch.stack([torch.randperm(memory_entries, generator=generator)[:entries] for _ in range(slots)])
    nothing = torch.zeros(beams, dtype=torch.int64)
    return TreeBatch(
        token_ids=nothing.cuda(),
        positions=nothing.cuda(),
        slots=slot_ids.repeat_interleave(counts).cuda(),
        entries=nothing.cuda(),
        lanes=torch.cat([torch.arange(int(count)) for count in counts]).cuda(),
        ancestry=sees.cuda(),
        entry_positions=torch.zeros(slots, entries, dtype=torch.int64).cuda(),
        beam_counts=tuple(counts.tolist()),
        prefix_lengths=(),
        outputs=torch.arange(beams).cuda(),
        columns=order.cuda() if columns else None,
        rows=slot_ids.cuda() if rows else None,
        row_of=torch.arange(slots).repeat_interleave(counts).cuda() if rows else None,
    )


def compare(
    heads: int, key_heads: int, width: int, batch: TreeBatch, memory: int, dtype: torch.dtype
) -> dict[str, Any]:
    torch.manual_seed(0)
    slots = 2 * len(batch.beam_counts)
    query = torch.randn(heads, batch.beams, width, device="cuda", dtype=dtype)
    keys = torch.randn(slots, memory, key_heads, width, device="cuda", dtype=dtype)
    values = torch.randn_like(keys)
    layout = hf_attention.Layout(batch)
    style = hf_attention.AttentionStyle(None, None, None)

    def fast() -> torch.Tensor:
        return hf_attention.attend_beams(query, keys, values, layout, style)

    def plain() -> torch.Tensor:
        return hf_attention._attend_rectangle(query, keys, values, layout, style)

    exact = hf_attention._attend_rectangle(
        query.double(), keys.double(), values.double(), hf_attention.Layout(batch), style
    )
    return {
        "shape": [heads, key_heads, width, len(batch.beam_counts), batch.ancestry.shape[-1]],
        "kernel_error": float((fast().double() - exact).abs().max()),
        "plain_error": float((plain().double() - exact).abs().max()),
        "kernel_ms": milliseconds(fast),
        "plain_ms": milliseconds(plain),
    }


def milliseconds(work: Any) -> float:
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 50


def main() -> None:
    for heads, key_heads, width in ((32, 32, 128), (64, 8, 128), (8, 8, 60), (8, 2, 64)):
        for rows, columns in ((False, False), (True, False), (False, True)):
            batch = make_batch(120, 20, 640, share=0.02, memory_entries=768, rows=rows, columns=columns)
            print(json.dumps(compare(heads, key_heads, width, batch, 768, torch.bfloat16)), flush=True)
    # More lanes than bits in a word, and groups of heads that put the lanes of one program into two words.
    batch = make_batch(12, 128, 640, share=0.05, memory_entries=768)
    for heads, key_heads in ((8, 8), (6, 2), (28, 4), (40, 8)):
        print(json.dumps(compare(heads, key_heads, 64, batch, 768, torch.bfloat16)), flush=True)
    batch = make_batch(500, 1, 120, share=0.5, memory_entries=150, rows=True)
    print(json.dumps(compare(32, 32, 128, batch, 150, torch.bfloat16)), flush=True)


if __name__ == "__main__":
    assert tree_attention.triton is not None
    with torch.inference_mode():
        main()
