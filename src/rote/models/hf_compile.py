"""Compiled layers: the many small element-wise kernels around the matrix products become few.

Pays on a GPU, where those kernels take a third of a step at 7B shape; the first minute goes into compiling. On a CPU
the products dominate and nothing is gained, so it is left off there. Forwards of few tokens wait for the host, and a
compiled layer takes the host longer than a plain one: they run plain.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from rote.errors import ModelError

FEW_TOKENS = 1024
"""Forwards of fewer tokens run plain layers: there the host takes longer than the device."""


def compile_layers(model: Any, *, backend: str = "inductor") -> None:
    """Compile every decoder layer in place, for any number of tokens; tree attention is one operation in it."""
    layers = _layers(model)
    if layers is None:
        raise ModelError(f"--compile does not know the layers of {type(model).__name__}. Leave it off.")
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    for module in model.modules():
        if isinstance(number := getattr(module, "layer_idx", None), int):
            # A number that is a tensor is an input of what is compiled; as an integer it would be compiled in.
            module.register_buffer("layer_number", torch.tensor(number), persistent=False)
    for layer in layers:
        layer.compile(dynamic=True, backend=backend)


@contextmanager
def as_fast_as_can_be(model: Any, tokens: int) -> Iterator[None]:
    """Within this block a forward of so many tokens takes the faster kind of layers."""
    layers = [layer for layer in _layers(model) or () if layer._compiled_call_impl is not None]
    if tokens >= FEW_TOKENS or not layers:
        yield
        return
    compiled = [layer._compiled_call_impl for layer in layers]
    for layer in layers:
        layer._compiled_call_impl = None
    try:
        yield
    finally:
        for layer, implementation in zip(layers, compiled, strict=True):
            layer._compiled_call_impl = implementation


def is_in_one_place(model: Any) -> bool:
    """Whether one device has all of the model."""
    return len({weight.device for weight in model.parameters()}) == 1


def most_layers_together(model: Any) -> int:
    """Layers on the device that has most of them."""
    places = Counter(weight.device for layer in _layers(model) or () for weight in islice(layer.parameters(), 1))
    return max(places.values(), default=model.config.get_text_config().num_hidden_layers)


def _layers(model: Any) -> Any:
    body = model.get_decoder() if hasattr(model, "get_decoder") else None
    return getattr(body, "layers", None) or getattr(body, "h", None)
