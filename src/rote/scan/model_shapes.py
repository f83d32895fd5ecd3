"""Shapes of models by the size people call them by, for planning scans of models that are not at hand."""

from dataclasses import dataclass

from rote.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A Llama-like decoder in bf16."""

    layers: int
    width: int
    inner_width: int
    heads: int
    key_value_heads: int
    vocabulary: int
    head_width: int = 128

    @property
    def layer_weights(self) -> int:
        """Weights of one layer's matrices: queries and output, keys and values, the three of the feed-forward."""
        attention = 2 * self.width * self.head_width * (self.heads + self.key_value_heads)
        return attention + 3 * self.width * self.inner_width

    @property
    def head_weights(self) -> int:
        return self.width * self.vocabulary

    @property
    def weights_bytes(self) -> int:
        """Layers, embedding and head."""
        return 2 * (self.layers * self.layer_weights + 2 * self.head_weights)

    @property
    def bytes_per_entry(self) -> int:
        """Keys and values of one token."""
        return 2 * 2 * self.layers * self.key_value_heads * self.head_width


SHAPES = {
    "7b": ModelShape(32, 4096, 11008, 32, 32, 32000),
    "8b": ModelShape(32, 4096, 14336, 32, 8, 128256),
    "13b": ModelShape(40, 5120, 13824, 40, 40, 32000),
    "34b": ModelShape(48, 8192, 22016, 64, 8, 32000),
    "70b": ModelShape(80, 8192, 28672, 64, 8, 32000),
    "405b": ModelShape(126, 16384, 53248, 128, 8, 128256),
}
"""Llama 1 and 2, Code Llama, and Llama 3.1 where the name says 8b or 405b."""


def shape_named(name: str) -> ModelShape:
    if name.lower() not in SHAPES:
        raise ConfigError(f"model-size is {name!r}; the shapes known are {', '.join(SHAPES)}.")
    return SHAPES[name.lower()]
