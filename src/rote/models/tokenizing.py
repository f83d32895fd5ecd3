"""Texts to tokens and back by a Hugging Face tokenizer, whatever model stands behind it."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rote.errors import ModelError
from rote.models.plain_text import PlainTextTokenizer
from rote.types import BosRule, Encoding


class Tokenizing:
    """A tokenizer with the name of its model, for sentences about it."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer, self.name = tokenizer, name

    def bos_id(self, rule: BosRule) -> int | None:
        """The token to put before every prefix; None for none. `auto` does what the tokenizer itself does."""
        bos = getattr(self.tokenizer, "bos_token_id", None)
        if rule == "never":
            return None
        if rule == "always":
            if bos is None:
                raise ModelError(f"{self.name} has no beginning-of-text token. Use --bos never.")
            return int(bos)
        added = self.tokenizer("a")["input_ids"]
        return int(bos) if bos is not None and added and added[0] == bos else None

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokens of each text with their spans; special tokens that the text spells are text (`plain_text`)."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise ModelError(
                f"the tokenizer of {self.name} cannot map tokens to characters. Use a model with a fast tokenizer."
            )
        return self._plain_text.encode_batch(texts)

    @cached_property
    def _plain_text(self) -> PlainTextTokenizer:
        return PlainTextTokenizer(self.tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
