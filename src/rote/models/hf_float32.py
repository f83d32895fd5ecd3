"""A model evaluated in float32 without a second copy of it: each module's weights are widened while it runs.

Half-precision numbers move with the shape of a forward; whether two ways of computing agree is seen in float32. A copy
of a large model would not fit beside it, one widened layer does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def widened(model: Any) -> Iterator[None]:
    """Within this block `model` computes in float32. Its weights are the same memory again afterwards."""
    if model.dtype == torch.float32:
        yield
        return
    held: dict[torch.Tensor, torch.Tensor] = {}  # parameter or buffer → its memory
    handles = []

    def widen(module: Any, *_: Any) -> None:
        for tensor in _own_tensors(module):
            if tensor not in held and tensor.is_floating_point() and tensor.dtype != torch.float32:
                held[tensor] = tensor.data
                tensor.data = tensor.data.float()

    def restore(module: Any, *_: Any) -> None:
        for tensor in _own_tensors(module):
            if tensor in held:
                tensor.data = held.pop(tensor)

    try:
        for module in model.modules():
            if any(True for _ in _own_tensors(module)):
                handles.append(module.register_forward_pre_hook(widen))
                handles.append(module.register_forward_hook(restore, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for tensor, memory in held.items():
            tensor.data = memory


def _own_tensors(module: Any) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
