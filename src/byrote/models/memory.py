"""Memory of host and device, and copies between them that make neither wait for the other.

A plain copy makes the host wait until the device has done everything queued before it. These do not.
"""

import math
import mmap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GROWTH = 1.5
"""A session that runs out of entries grows by this factor."""
WORD = 8
"""Bytes at whose multiples arrays begin that are sent together."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor on the device, queued like any other work there."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def together_to_device(parts: Sequence[NDArray[Any]], device: torch.device) -> tuple[Tensor, ...]:
    """Arrays of any kinds on the device, in one transfer: each costs more than its bytes. A CPU shares their memory."""
    if device.type == "cpu":
        return tuple(map(torch.from_numpy, parts))
    packed, begins = side_by_side(parts, is_pinned=device.type == "cuda")
    return apart(packed.to(device, non_blocking=True), begins, parts)


def side_by_side(parts: Sequence[NDArray[Any]], *, is_pinned: bool) -> tuple[Tensor, list[int]]:
    """The bytes of all arrays, and where those of each begin."""
    ends = np.cumsum([-(-part.nbytes // WORD) * WORD for part in parts])
    packed = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=is_pinned)
    begins, host = [0, *ends[:-1].tolist()], packed.numpy()
    for begin, part in zip(begins, parts, strict=True):
        host[begin : begin + part.nbytes] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    return packed, begins


def apart(packed: Tensor, begins: Sequence[int], parts: Sequence[NDArray[Any]]) -> tuple[Tensor, ...]:
    """The arrays again, of the kinds and shapes of `parts`."""
    return tuple(
        packed[begin : begin + part.nbytes].view(torch.from_numpy(part[:0]).dtype).view(part.shape)
        for begin, part in zip(begins, parts, strict=True)
    )


def ranges(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """0 … count − 1 for each count, one after the other."""
    each = np.asarray(counts, dtype=np.int64)
    return np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)


def grown(held: int, needed: int) -> int:
    """Entries to grow to from those `held`: growing copies everything, so it must be rare."""
    return max(needed, int(held * GROWTH))


def zeros_as_touched(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros of the kind of `like`. On a CPU, pages are allocated at their first use: unused capacity costs nothing."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    pages = mmap.mmap(-1, max(1, math.prod(shape) * like.element_size()))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # Large pages would be zeroed whole for the few rows of each slot that are used.
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype, count=math.prod(shape)).view(shape)


class Handover:
    """Copies to the host that were started; `wait` returns them once they have arrived, whatever was queued later."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        self._tensors = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
        self._arrived: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors):
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def wait(self) -> list[Tensor]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensors
