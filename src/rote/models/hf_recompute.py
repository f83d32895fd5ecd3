"""The fallback session: for models that cannot attend through a mask, histories are rebuilt and evaluated whole.

Slow, but the same numbers.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rote.models.base import TreeBatch
from rote.models.hf_head import ChunkedHead
from rote.models.token_memory import History, TokenMemory

MOST_HISTORIES = 64
"""Histories evaluated at once."""


class RecomputeSession(TokenMemory):
    """Every slot's tokens by entry; nothing else is remembered."""

    def __init__(self, head: ChunkedHead, slots: int, entries: int) -> None:
        super().__init__(slots, entries, head.model.device)
        self._head = head

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._head.logits(self.states(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return self._head.chunks(self.states(batch))

    def states(self, batch: TreeBatch) -> Tensor:
        """Store the batch; what the head needs of its outputs, in their order."""
        histories = self.take(batch)
        longest = max((len(history.token_ids) for history in histories), default=1)
        count = self._head.sequences_at_once(MOST_HISTORIES, longest)
        parts = [self._head.no_states()]
        for first in range(0, len(histories), count):
            parts.append(self._evaluate(histories[first : first + count]))
        order = torch.tensor([output for history in histories for output in history.outputs], dtype=torch.int64)
        return torch.cat(parts).index_select(0, order.argsort().to(parts[-1].device))

    def _evaluate(self, histories: list[History]) -> Tensor:
        # Padding comes after a history, where a causal model cannot look.
        ids = pad_sequence([history.token_ids for history in histories], batch_first=True)
        places = [row * ids.shape[1] + place for row, history in enumerate(histories) for place in history.places]
        return self._head.states(torch.tensor(places, device=ids.device), input_ids=ids)
