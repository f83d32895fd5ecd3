"""Table models behind a loopback server, opened as a user's command opens a served model."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from byrote.models.base import CausalModel
from byrote.models.history import HistorySession
from byrote.models.listed import ListedModel, Prompt, Row, RowFiller, row_of
from byrote.models.served.client import RequestLimits
from byrote.models.served.model import EndpointModel, connect
from byrote.models.served.retries import RetryPolicy
from byrote.policy import Policy
from tests.loopback.logprobs import Habits, LogprobServer
from tests.table import TableModel

KEY = "sk-loopback-0123456789"
DIALECTS = ("vllm", "sglang", "llamacpp")


@dataclass
class MemoryRequestCount:
    """Counts for one opening alone."""

    requests: int = 0
    tokens: int = 0

    def add(self, *, tokens: int) -> None:
        self.requests += 1
        self.tokens += tokens

    def close(self) -> None:
        """Nothing to close."""


def word_tokenizer(size: int) -> Any:
    """One token for each of `size` words; every other word is the first token."""
    words = {"zero": 0, **{f"w{number}": number for number in range(1, size)}}
    tokenizer = Tokenizer(tokenizer_models.WordLevel(words, unk_token="zero"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(prefix="")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def word_folder(folder: Path, size: int) -> Path:
    path = folder / f"words-{size}"
    if not path.exists():
        word_tokenizer(size).save_pretrained(path)
    return path


def tokens_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def quick(**changes: Any) -> RequestLimits:
    """Limits without waits."""
    return RequestLimits(retry=RetryPolicy(base_seconds=0.0), sleep=lambda seconds: None, **changes)


@contextmanager
def serving(model: CausalModel, habits: Habits | None = None, **further: Any) -> Iterator[LogprobServer]:
    tokenizer = word_tokenizer(model.vocab_size)
    with LogprobServer(model, lambda text: tokens_of(tokenizer, text), habits, **further) as server:
        yield server


@contextmanager
def open_served(
    server: LogprobServer, folder: Path, policy: Policy, limits: RequestLimits | None = None, **options: Any
) -> Iterator[EndpointModel]:
    model = connect(
        f"endpoint:{server.url}",
        key=KEY,
        policy=policy,
        tokenizer=str(word_folder(folder, server.model.vocab_size)),
        limits=limits or quick(),
        sent=MemoryRequestCount(),
        **options,
    )
    with closing(model):
        yield model


class ListedTable(TableModel):
    """A table model whose session asks for rows, as that of a served model does, without a server between."""

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        return super().next_logits(histories).log_softmax(-1)

    def rows(self, prompts: Sequence[Prompt]) -> list[list[Row]]:
        return [[self._row(prompt.token_ids[: place + 1]) for place in _places(prompt)] for prompt in prompts]

    def _row(self, history: Sequence[int]) -> Row:
        (log_probs,) = self.next_logits([history]).tolist()
        return row_of(dict(enumerate(log_probs)), listed=self.vocab_size, vocab_size=self.vocab_size)

    def open_tree(  # type: ignore[override]
        self, slots: int, entries: int, *, longest: int | None = None
    ) -> HistorySession:
        filler = RowFiller(Policy(1.0, None), self.vocab_size, self.vocab_size)
        return ListedModel(self, filler).open_tree(slots, entries, longest=longest)


def _places(prompt: Prompt) -> range:
    return range(prompt.first_place, len(prompt.token_ids))
