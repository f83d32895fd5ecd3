"""The session of a served model: histories are kept as tokens, and what comes after them is asked of the server."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rote.models.base import TreeBatch
from rote.models.endpoint_asking import Asker
from rote.models.endpoint_dialects import Prompt
from rote.models.endpoint_rows import Filling, Row
from rote.models.token_memory import TokenMemory

CHUNK = 64
"""Rows of logits in one piece of a forward."""


@dataclass(slots=True)
class LeftOpen:
    """What a server's short lists cost: the share of the policy's next token that stayed open, place by place."""

    places: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, shares: Sequence[float]) -> None:
        self.places += len(shares)
        self.total += sum(shares)
        self.largest = max([self.largest, *shares])

    @property
    def mean(self) -> float:
        return self.total / self.places if self.places else math.nan


class EndpointSession(TokenMemory):
    """One prompt for each beam and each chain; all prompts of a forward are asked together."""

    def __init__(self, asker: Asker, filling: Filling, left_open: LeftOpen, *, slots: int, entries: int) -> None:
        super().__init__(slots, entries, torch.device("cpu"))
        self._asker, self._filling, self._left_open = asker, filling, left_open

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._filling.logits(self._rows(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        rows = self._rows(batch)
        return (self._filling.logits(rows[first : first + CHUNK]) for first in range(0, max(1, len(rows)), CHUNK))

    def _rows(self, batch: TreeBatch) -> list[Row]:
        """Store the batch; the row of each output."""
        histories = self.take(batch)
        prompts = [Prompt(tuple(history.token_ids.tolist()), min(history.places)) for history in histories]
        answered = self._asker.rows(prompts)
        rows = {
            output: places[place - prompt.first_place]
            for history, prompt, places in zip(histories, prompts, answered, strict=True)
            for output, place in zip(history.outputs, history.places, strict=True)
        }
        self._left_open.add([self._filling.open_share(row) for row in rows.values()])
        return [rows[output] for output in range(len(rows))]
