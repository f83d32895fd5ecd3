"""Sessions that remember tokens and nothing else: histories are rebuilt from them and evaluated whole.

A beam's history is what its ancestry admits, in the order of positions; a chain is one history that holds all of its
places.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

from byrote.models.base import Stored, TreeBatch


class History(NamedTuple):
    """Tokens to evaluate, and which outputs of the batch are read at which place of them."""

    token_ids: Tensor  # [length] int64
    outputs: list[int]
    places: list[int]


class TokenMemory:
    """Every slot's tokens by entry: the part of the session contract that stores, and the histories of a batch."""

    def __init__(self, slots: int, entries: int, device: torch.device) -> None:
        self._tokens = torch.zeros(slots, entries, dtype=torch.int64, device=device)

    @property
    def entries(self) -> int:
        return int(self._tokens.shape[1])

    def grow(self, entries: int) -> None:
        self._tokens = functional.pad(self._tokens, (0, entries - self.entries))

    def move(self, source: int, target: int, entries: int) -> None:
        self._tokens[target, :entries] = self._tokens[source, :entries]

    def copy_out(self, slots: Sequence[int], entries: int) -> Stored:
        return {0: (self._tokens[list(slots), :entries],)}

    def copy_in(self, slots: Sequence[int], stored: Stored) -> None:
        ((tokens,),) = stored.values()
        self._tokens[list(slots), : tokens.shape[1]] = tokens

    def take(self, batch: TreeBatch) -> list[History]:
        """Store the batch. As few histories as hold all outputs: one for each beam, one for each chain."""
        self._tokens[batch.slots, batch.entries] = batch.token_ids
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
