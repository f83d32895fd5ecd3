"""Compiled layers: the many small element-wise kernels around the matrix products become few.

Pays on a GPU, where those kernels take a third of a step at 7B shape; the first minute goes into compiling. On a CPU
the products dominate and nothing is gained, so it is left off there.
"""

from typing import Any

import torch

from rote.errors import ModelError


def compile_layers(model: Any) -> None:
    """Compile every decoder layer in place, for any number of tokens. Attention stays outside the compiled parts."""
    body = model.get_decoder() if hasattr(model, "get_decoder") else None
    layers = getattr(body, "layers", None) or getattr(body, "h", None)
    if layers is None:
        raise ModelError(f"--compile does not know the layers of {type(model).__name__}. Leave it off.")
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    for layer in layers:
        layer.compile(dynamic=True)
