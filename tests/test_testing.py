"""`check_model` passes models that keep the contract and names each planted fault of those that do not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import byrote
from byrote.errors import ModelError
from byrote.models.base import TreeBatch, TreeSession
from byrote.models.hf.model import HuggingFaceModel
from byrote.testing import check_model
from tests.models.tiny import tiny_model
from tests.table import TableModel, TableSession

VOCABULARY = 30
Histories = Sequence[Sequence[int]]


class Sound:
    """Keeps the contract with nothing but what it asks for."""

    vocab_size = VOCABULARY

    def __init__(self, seed: int = 0) -> None:
        self.table = TableModel.random(seed, vocab_size=VOCABULARY)

    def next_logits(self, histories: Histories) -> Any:
        return self.table.next_logits(histories).numpy()


class Faulty(Sound):
    """Sound answers, spoiled by one function of (self, histories, logits)."""

    def __init__(self, spoil: Callable[["Faulty", Histories, np.ndarray], Any]) -> None:
        super().__init__()
        self.spoil = spoil
        self.previous: np.ndarray | None = None

    def next_logits(self, histories: Histories) -> Any:
        return self.spoil(self, histories, super().next_logits(histories))


def log_probs(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).double().log_softmax(-1).numpy()


class Normalised(Sound):
    """Gives log-probabilities and says so; `excess` is added to each."""

    def __init__(self, excess: float = 0.0) -> None:
        super().__init__()
        self.excess = excess

    def next_log_probs(self, histories: Histories) -> np.ndarray:
        return log_probs(self.next_logits(histories)) + self.excess


def leaking(model: Faulty, histories: Histories, logits: np.ndarray) -> np.ndarray:
    """A hidden state that is carried into the next batch."""
    before = 0.0 if model.previous is None else model.previous
    model.previous = logits[-1].copy()
    return logits + 0.1 * before


def remembering(model: Faulty, histories: Histories, logits: np.ndarray) -> np.ndarray:
    """A cache by shape that is never emptied."""
    if model.previous is None or model.previous.shape != logits.shape:
        model.previous = logits
    return model.previous


def by_tokens(model: Faulty, histories: Histories, logits: np.ndarray) -> np.ndarray:
    """Sorted for speed, and not sorted back."""
    return logits[sorted(range(len(histories)), key=lambda row: list(histories[row]))]


PLANTED: dict[str, tuple[Callable[[], Any], str]] = {
    "rows reversed": (lambda: Faulty(lambda _, h, logits: logits[::-1].copy()), "in another order"),
    "rows sorted": (lambda: Faulty(by_tokens), "in another order"),
    "probabilities": (lambda: Faulty(lambda _, h, logits: np.exp(log_probs(logits))), "gave probabilities"),
    "rows that do not add up": (lambda: Normalised(0.05), "add up to 1.05127 instead of 1"),
    "ignores context": (
        lambda: Faulty(lambda _, h, logits: np.tile(np.arange(30.0), (len(h), 1))),
        "ignores its context",
    ),
    "leaks": (lambda: Faulty(leaking), "state leaks"),
    "remembers": (lambda: Faulty(remembering), "state leaks"),
    "chance": (
        lambda: Faulty(lambda _, h, logits: logits + np.random.default_rng().normal(size=logits.shape)),
        "chance",
    ),
    "vocabulary too small": (lambda: Faulty(lambda _, h, logits: logits[:, :-1]), r"gave the shape \[5, 29\]"),
    "vocabulary too large": (lambda: Faulty(lambda _, h, logits: np.pad(logits, ((0, 0), (0, 1)))), r"shape \[5, 31\]"),
    "one row": (lambda: Faulty(lambda _, h, logits: logits[0]), r"shape \[30\] for 5 histories"),
    "company": (lambda: Faulty(lambda _, h, logits: logits - logits.mean(0) / 3 * (len(h) > 1)), "alone"),
    "NaN": (lambda: Faulty(lambda _, h, logits: logits * np.nan), "every row needs numbers"),
    "no table": (lambda: Faulty(lambda _, h, logits: "logits"), "no table of numbers"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_named(fault: str) -> None:
    make, words = PLANTED[fault]
    with pytest.raises(ModelError, match=words):
        check_model(make())


@pytest.mark.parametrize(
    "make",
    [
        Sound,
        Normalised,
        lambda: TableModel.random(1, vocab_size=VOCABULARY),
        lambda: HuggingFaceModel(tiny_model("llama"), None),
        lambda: Faulty(lambda _, h, logits: (logits + 100).tolist()),
        lambda: Faulty(lambda _, h, logits: np.where(logits > 0, logits, -np.inf)),
    ],
    ids=["logits", "log-probabilities", "own session", "hugging face", "shifted lists", "impossible tokens"],
)
def test_models_that_keep_the_contract_pass(make: Callable[[], Any]) -> None:
    check_model(make())


@given(st.integers(0, 2**31))
def test_sound_models_pass_with_every_choice_of_histories(seed: int) -> None:
    check_model(Sound(seed % 7), seed=seed)


class WrongSession(TableSession):
    """Lets a beam see one entry too many."""

    def forward(self, batch: TreeBatch) -> Tensor:
        logits = super().forward(batch)
        return logits.roll(1, dims=0) if batch.beams else logits


class WithWrongSession(TableModel):
    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        return WrongSession(self, slots, entries)


def test_a_session_that_disagrees_with_next_logits_is_found() -> None:
    with pytest.raises(ModelError, match="tree session of WithWrongSession gave other numbers"):
        check_model(WithWrongSession.random(0, vocab_size=VOCABULARY))


class Texts(Sound):
    def __init__(self, ids: list[int], spans: list[tuple[int, int]], eos_ids: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.encoding, self.eos_ids = (ids, spans), eos_ids

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        return [self.encoding for _ in texts]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Texts([0, 30], [(0, 1), (1, 2)]), "gave the token 30, but tokens are 0 … 29"),
        (Texts([0, 1], [(0, 1)]), "one character span for each token"),
        (Texts([0, 1], [(2, 3), (0, 1)]), "one character span for each token"),
        (Texts([0], [(0, 1)], frozenset({30})), "eos_ids of Texts has 30"),
    ],
)
def test_texts_and_end_tokens_that_do_not_fit_are_found(model: Texts, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        check_model(model)
    check_model(Texts([0, 1], [(0, 1), (1, 2)], frozenset({3})))


class Bigram(Sound):
    def next_logits(self, histories: Histories) -> Any:
        return super().next_logits([history[-1:] for history in histories])


def test_how_far_a_model_must_look_back_is_for_its_user_to_say() -> None:
    check_model(Bigram())
    with pytest.raises(ModelError, match="differ in the token 2 before the next one"):
        check_model(Bigram(), context_tokens=2)
    check_model(Sound(), context_tokens=5)


class Raising(Sound):
    def next_logits(self, histories: Histories) -> Any:
        return np.zeros((VOCABULARY - 1, VOCABULARY))[np.array(histories)].sum(1)


def test_a_model_that_cannot_take_all_of_its_vocabulary_is_named() -> None:
    with pytest.raises(ModelError, match=r"Raising raised IndexError .* it must answer all of them"):
        check_model(Raising())


@pytest.mark.parametrize("size", [None, 0, -3, 2.5, True])
def test_a_vocabulary_size_that_is_no_count_is_refused(size: object) -> None:
    model = Sound()
    model.vocab_size = size  # type: ignore[assignment]
    with pytest.raises(ModelError, match="must be the number of its tokens"):
        check_model(model)


def test_the_check_is_found_where_the_documents_say() -> None:
    assert byrote.testing.check_model is check_model
