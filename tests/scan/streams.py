"""Windows and models for tests of the measures: a table model that knows some of its windows by heart."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from rote.models.table import TableModel
from rote.models.teacher_forcing import VerbatimScore, score_verbatim
from rote.policy import Policy
from rote.scan.near import NearResult
from rote.search.base import Limits
from rote.types import Split, Window
from tests.search.test_engine_equals_reference import PLAIN

PREFIX, SUFFIX, VOCABULARY = 3, 5, 6
LIMITS = Limits(PREFIX, SUFFIX)
POLICY = Policy(1.0, 4)
OPTIONS = replace(
    PLAIN, policy=POLICY, edit_budget=1, pin_verbatim=True, threshold=0.001, keep=2, record_frontier=False
)


def make_window(number: int, ids: Sequence[int], *, prefix: int = PREFIX) -> Window:
    return Window(
        window_id=f"book.txt@{number}",
        document="book.txt",
        split=Split.TARGET,
        char_start=number,
        suffix_char_start=number + prefix,
        char_end=number + len(ids),
        prefix_ids=tuple(ids[:prefix]),
        suffix_ids=tuple(ids[prefix:]),
    )


def random_windows(count: int, *, seed: int = 0, low: int = 0) -> list[Window]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(low, VOCABULARY, (count, PREFIX + SUFFIX), generator=generator).tolist()
    return [make_window(number, row) for number, row in enumerate(ids)]


def knowing_model(known: Sequence[Window], *, seed: int = 0, eos_ids: frozenset[int] = frozenset()) -> TableModel:
    """Random logits everywhere, except that the next token of every known window has logit 8."""
    explicit: dict[tuple[int, ...], list[float]] = {}
    for window in known:
        for place in range(PREFIX, PREFIX + SUFFIX):
            row = [0.0] * VOCABULARY
            row[window.ids[place]] = 8.0
            explicit[window.ids[:place]] = row
    generator = torch.Generator().manual_seed(seed)
    return TableModel(torch.randn(512, VOCABULARY, generator=generator) * 3, explicit=explicit, eos_ids=eos_ids)


def scored(model: TableModel, windows: Sequence[Window]) -> list[VerbatimScore]:
    return list(score_verbatim(model, windows, [POLICY], batch_windows=16))


class WatchedStream:
    """Scores for a measure to take and an `emit` for its results: counts both, and the most that were held at once."""

    def __init__(self, scores: Sequence[VerbatimScore]) -> None:
        self._scores = scores
        self.taken = self.left = self.most_held = 0

    def __iter__(self) -> Iterator[VerbatimScore]:
        for score in self._scores:
            self.taken += 1
            self.most_held = max(self.most_held, self.taken - self.left)
            yield score

    def emit(self, result: NearResult) -> None:
        self.left += 1
