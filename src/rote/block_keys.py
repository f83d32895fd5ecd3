"""The best token of every block of tokens in one pass over the logits, on a GPU.

A token's key orders logits and breaks ties by lower id: the logit as an ordered integer above the id reversed. The
`count` tokens with the largest keys lie in the `count` blocks whose best keys are largest, because keys never tie. So
`policy.top_tokens` needs keys of whole rows nowhere, and no look by the host. Block b holds tokens b, b + blocks, ….
"""

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # pragma: no cover: a machine without a GPU build of torch
    triton = None

BLOCKS_AT_ONCE = 256


def is_available(logits: Tensor) -> bool:
    return triton is not None and logits.is_cuda and logits.dtype == torch.float32 and logits.dim() == 2


def best_keys(logits: Tensor, *, block: int) -> Tensor:
    """The largest key in each block of `block` tokens. [rows, blocks] int64; `logits` [rows, vocab] float32."""
    rows, vocab_size = logits.shape
    blocks = -(-vocab_size // block)
    keys = torch.empty(rows, blocks, dtype=torch.int64, device=logits.device)
    grid = (rows, -(-blocks // BLOCKS_AT_ONCE))
    _best_keys[grid](
        logits, keys, logits.stride(0), blocks, vocab_size, BLOCK=block, BLOCKS_AT_ONCE=BLOCKS_AT_ONCE, num_warps=4
    )
    return keys


def _define() -> Any:
    """The kernel, where there is something to compile it with."""

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


_best_keys: Any = _define() if triton is not None else None
