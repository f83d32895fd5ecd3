"""The fallback session: for models that cannot attend through a mask, histories are rebuilt and evaluated whole.

Slow, but the same numbers. The memory holds tokens; a beam's history is what its ancestry admits, in the order of
positions, and a chain is one history that holds all of its places.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rote.models.base import Stored, TreeBatch
from rote.models.hf_head import ChunkedHead

MOST_HISTORIES = 64
"""Histories evaluated at once."""


class History(NamedTuple):
    """Tokens to evaluate, and which outputs of the batch are read at which place of them."""

    token_ids: Tensor  # [length] int64
    outputs: list[int]
    places: list[int]


class RecomputeSession:
    """Every slot's tokens by entry; nothing else is remembered."""

    def __init__(self, head: ChunkedHead, slots: int, entries: int) -> None:
        self._head = head
        self._tokens = torch.zeros(slots, entries, dtype=torch.int64, device=head.model.device)

    @property
    def entries(self) -> int:
        return int(self._tokens.shape[1])

    def grow(self, entries: int) -> None:
        self._tokens = functional.pad(self._tokens, (0, entries - self.entries))

    def move(self, source: int, target: int, entries: int) -> None:
        self._tokens[target, :entries] = self._tokens[source, :entries]

    def copy_out(self, slot: int, entries: int) -> Stored:
        return {0: (self._tokens[slot, :entries].clone(),)}

    def copy_in(self, slot: int, stored: Stored) -> None:
        ((tokens,),) = stored.values()
        self._tokens[slot, : len(tokens)] = tokens

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._head.logits(self._states(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return self._head.chunks(self._states(batch))

    def _states(self, batch: TreeBatch) -> Tensor:
        """Store the batch; what the head needs of its outputs, in their order."""
        self._tokens[batch.slots, batch.entries] = batch.token_ids
        histories = self._histories(batch)
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

    def _histories(self, batch: TreeBatch) -> list[History]:
        """As few as hold all outputs: one for each beam, one for each chain however many of its places are asked."""
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
        return self._tokens[batch.slots[place], seen if batch.columns is None else batch.columns[row, seen]]
