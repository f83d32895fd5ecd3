"""Many windows of a table model through the engine, its sessions watched: for tests of streams."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

import torch

from byrote.models.base import Stored, TreeBatch, TreeSession
from byrote.search.base import SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from tests.search.reference import search
from tests.search.test_engine_equals_reference import PLAIN, assert_same
from tests.table import TableModel

MODEL = TableModel.random(5, vocab_size=5, spread=2.0, eos_ids=frozenset({0}))


def many_tasks(count: int, *, seed: int = 0) -> list[SearchTask]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 5, (count, 12), generator=generator).tolist()
    lengths = torch.randint(1, 7, (count, 2), generator=generator).tolist()
    return [
        SearchTask(key, tuple(row[:prefix]), tuple(row[6 : 6 + suffix]))
        for key, (row, (prefix, suffix)) in enumerate(zip(drawn, lengths, strict=True))
    ]


def tasks_for(model: TableModel, count: int, *, seed: int) -> list[SearchTask]:
    """As many as have only tokens that the model knows."""
    return [task for task in many_tasks(count, seed=seed) if max(*task.prefix_ids, *task.suffix_ids) < model.vocab_size]


class WatchedSession:
    """Passes everything on to a table session and calls `watch` before each forward and move."""

    def __init__(self, inner: TreeSession, watch: Callable[[TreeBatch | None], None]) -> None:
        self._inner, self._watch = inner, watch

    @property
    def entries(self) -> int:
        return self._inner.entries

    def grow(self, entries: int) -> None:
        self._inner.grow(entries)

    def move(self, sources: Sequence[int], targets: Sequence[int], entries: int) -> None:
        self._watch(None)
        self._inner.move(sources, targets, entries)

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        return self._inner.copy_out(slots, entries)

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        self._inner.copy_in(slots, stored)

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[torch.Tensor]:
        self._watch(batch)
        return self._inner.forward_in_chunks(batch)

    def forward(self, batch: TreeBatch) -> torch.Tensor:
        self._watch(batch)
        return self._inner.forward(batch)


class WatchedModel:
    """A table model whose sessions are watched. `opening` may refuse a number of slots."""

    max_positions: int | None = None
    first_entries: int | None = None
    """Open sessions with this little room instead of what was asked for."""

    def __init__(
        self,
        inner: TableModel,
        *,
        watch: Callable[[TreeBatch | None], None] = lambda batch: None,
        opening: Callable[[int], None] = lambda slots: None,
    ) -> None:
        self._inner, self._watch, self._opening = inner, watch, opening
        self.vocab_size, self.eos_ids, self.device = inner.vocab_size, inner.eos_ids, inner.device
        self.dtype = inner.dtype
        self.next_logits, self.tree_bytes_per_entry = inner.next_logits, inner.tree_bytes_per_entry

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TreeSession:
        self._opening(slots)
        return WatchedSession(self._inner.open_tree(slots, self.first_entries or entries), self._watch)


def failing_at(failing: set[int]) -> WatchedModel:
    """The n-th forward or move runs out of memory, for these n: moves happen after windows have ended."""
    calls = count()

    def watch(batch: TreeBatch | None) -> None:
        if next(calls) in failing:
            raise torch.OutOfMemoryError("CUDA out of memory (pretended)")

    return WatchedModel(MODEL, watch=watch)


def all_at_once(engine: Engine, tasks: list[SearchTask]) -> Iterator[SearchOutcome]:
    engine.put(tasks)
    while engine.waiting or engine.in_flight:
        yield from engine.step()


def assert_all_right(
    outcomes: Iterable[SearchOutcome],
    tasks: list[SearchTask],
    options: SearchOptions = PLAIN,
    model: TableModel = MODEL,
) -> None:
    """Every task has one outcome, and it is the reference's."""
    by_key, found = {task.key: task for task in tasks}, list(outcomes)
    assert sorted(outcome.key for outcome in found) == sorted(by_key)
    for outcome in found:
        assert_same(outcome, search(model, by_key[outcome.key], options))
