"""Tokenizers for tests: small, and as sensitive to a badly placed cut as real ones."""

import re
from collections.abc import Sequence

from byrote.types import Encoding


class WordTokenizer:
    """One token a word (with the blanks before it); the id depends on the whole word, so a cut word shows."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.characters = 0

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        self.batches.append(len(texts))
        self.characters += sum(map(len, texts))
        return [self.encode(text) for text in texts]

    def encode(self, text: str) -> Encoding:
        matches = list(re.finditer(r"\s*\S+|\s+$", text))
        ids = [sum(ord(c) * 31**i for i, c in enumerate(match.group())) % 1_000_003 for match in matches]
        return Encoding(ids, [match.span() for match in matches])


class ByteTokenizer(WordTokenizer):
    """One token a UTF-8 byte: several tokens share one character, as in byte-level BPE."""

    def encode(self, text: str) -> Encoding:
        pairs = [(byte, (index, index + 1)) for index, c in enumerate(text) for byte in c.encode()]
        return Encoding([byte for byte, _ in pairs], [span for _, span in pairs])
