"""A table model with a tokenizer and an identity, and Ray workers that have it: they start without transformers, in a
third of the time."""

from collections.abc import Sequence

from byrote.models.base import LanguageModel, ModelIdentity
from byrote.scan.executors import Worker
from byrote.types import Encoding
from tests.table import TableModel

ALPHABET = "abcdef "


class Letters(TableModel):
    """Tokens are letters."""

    alphabet = ALPHABET
    name = "letters"
    searches_trees = True

    @property
    def identity(self) -> ModelIdentity:
        return ModelIdentity("letters", None, "0" * 64, "0" * 64, 0, "float32", "cpu")

    @property
    def described(self) -> ModelIdentity:
        return self.identity

    def score_bytes_per_token(self) -> int:
        return 8

    def compile_layers(self) -> None: ...

    def bos_id(self, rule: str) -> int | None:
        return None

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        place = {letter: number for number, letter in enumerate(self.alphabet)}
        return [
            Encoding([place[letter] for letter in text], [(at, at + 1) for at in range(len(text))]) for text in texts
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.alphabet[number] for number in ids)


def letters() -> Letters:
    model = Letters.random(0, vocab_size=len(ALPHABET))
    assert isinstance(model, Letters)
    return model


class LetterWorker(Worker):
    def load(self) -> LanguageModel:
        return letters()
