"""Whether a sequence fits the model: the one check of everything that evaluates windows."""

from rote.errors import WindowError
from rote.models.base import TreeModel


def require_positions(
    model: TreeModel,
    tokens: int,
    *,
    what: str = "prefix + suffix are",
    advice: str = "Shorten --prefix-tokens or --suffix-tokens.",
) -> None:
    """A WindowError when the model takes no sequence of so many tokens."""
    if model.max_positions is not None and tokens > model.max_positions:
        raise WindowError(f"{what} {tokens} tokens, but the model takes at most {model.max_positions}. {advice}")
