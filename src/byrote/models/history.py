"""The session of a model that evaluates whole histories only: tokens are stored, and histories rebuilt from them.

A beam's history is what its ancestry admits, in the order of positions; a chain is one history, read at several places.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

from byrote.models.base import Stored, TreeBatch


class EntryMemory:
    """One integer per entry of every slot: the storing part of the session contract."""

    def __init__(self, slots: int, entries: int, device: torch.device) -> None:
        self._held = torch.zeros(slots, entries, dtype=torch.int64, device=device)

    @property
    def entries(self) -> int:
        return int(self._held.shape[1])

    def grow(self, entries: int) -> None:
        self._held = functional.pad(self._held, (0, entries - self.entries))

    def move(self, sources: Sequence[int], targets: Sequence[int], entries: int) -> None:
        self._held[list(targets), :entries] = self._held[list(sources), :entries]

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        return {0: (self._held[list(slots), :entries],)}

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        ((held,),) = stored.values()
        self._held[list(slots), : held.shape[1]] = held


class History(NamedTuple):
    """Tokens to evaluate, and which outputs of the batch are read at which places of them."""

    token_ids: Tensor  # [length] int64
    outputs: list[int]
    places: list[int]


class HistorySession(EntryMemory):
    """`evaluate` gives a row for every place of every history, in their order; `logits` turns some of these rows into
    logits, at most `rows_at_once` at a time when chunked."""

    def __init__(
        self,
        slots: int,
        entries: int,
        *,
        device: torch.device,
        evaluate: Callable[[list[History]], Sequence[Any]],
        logits: Callable[[list[Any]], Tensor],
        rows_at_once: int,
    ) -> None:
        super().__init__(slots, entries, device)
        self._evaluate, self._logits, self._rows_at_once = evaluate, logits, rows_at_once

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._logits(self._rows(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        rows, count = self._rows(batch), self._rows_at_once
        return (self._logits(rows[first : first + count]) for first in range(0, max(1, len(rows)), count))

    def _rows(self, batch: TreeBatch) -> list[Any]:
        """Store the batch; a row for each of its outputs."""
        histories = self._store(batch)
        outputs = [output for history in histories for output in history.outputs]
        return [row for _, row in sorted(zip(outputs, self._evaluate(histories), strict=True), key=itemgetter(0))]

    def _store(self, batch: TreeBatch) -> list[History]:
        """Store the batch. As few histories as hold all outputs: one for each beam, one for each chain."""
        self._held[batch.slots, batch.entries] = batch.token_ids
        rows = batch.beam_rows
        starts = list(accumulate(batch.prefix_lengths, initial=batch.beams))
        beams: list[History] = []
        chains: dict[int, History] = {}
        for output, place in enumerate(batch.outputs.tolist()):
            if place < batch.beams:
                token_ids = self._lineage(batch, place, rows[place])
                beams.append(History(token_ids, [output], [len(token_ids) - 1]))
                continue
            chain = bisect_right(starts, place) - 1
            start, end = starts[chain], starts[chain + 1]
            history = chains.setdefault(chain, History(batch.token_ids[start:end], [], []))
            history.outputs.append(output)
            history.places.append(place - start)
        return [*beams, *chains.values()]

    def _lineage(self, batch: TreeBatch, place: int, row: Tensor) -> Tensor:
        """A beam's tokens, its own last."""
        (seen,) = torch.nonzero(batch.ancestry[row, batch.lanes[place]], as_tuple=True)
        seen = seen[batch.entry_positions[row, seen].argsort()]
        return self._held[batch.slots[place], seen if batch.columns is None else batch.columns[row, seen]]
