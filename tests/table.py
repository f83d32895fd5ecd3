"""The table model: an exact conditional distribution for any history, small vocabularies, float32 logits.

A history is folded into Σ (token + 1)·m^position (mod 2⁶⁴); the sum picks a row of a table of logits. The sum can be
taken over any set of (token, position) pairs, so a tree session rebuilds each beam's history from nothing but the
entries its ancestry mask admits: a wrong mask, a reused entry or a lost ancestor gives another row. That makes this
model the judge of the engine as well as the oracle for enumeration.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from byrote.distance.text import TokenTexts
from byrote.errors import ConfigError
from byrote.models.base import TreeBatch, WindowScores
from byrote.models.history import EntryMemory
from byrote.models.scoring import score_by_histories
from byrote.policy import Policy

CHUNK = 64
"""Rows of logits in one piece of a forward."""
_MULTIPLIER = 6364136223846793005
_MIXER = -7046029254386353131  # 2⁶⁴ / golden ratio, odd, as a signed number


class TableModel:
    """Rows of logits chosen by the history: by an explicit mapping first, then by hashing into the table."""

    max_positions: int | None = None
    dtype = torch.float32
    tokenizing = None

    def __init__(
        self,
        table: Tensor,
        *,
        explicit: Mapping[tuple[int, ...], Sequence[float]] | None = None,
        eos_ids: frozenset[int] = frozenset(),
        pieces: Sequence[bytes | None] | None = None,
    ) -> None:
        """`pieces`: UTF-8 of every token."""
        self._pieces = pieces
        if table.ndim != 2 or 0 in table.shape:
            raise ConfigError(f"a table of logits needs shape [rows, vocabulary], not {tuple(table.shape)}.")
        self._hashed_rows = table.shape[0]
        self.eos_ids = eos_ids
        histories = dict(explicit or {})
        special = torch.tensor(list(histories.values()), dtype=torch.float32).reshape(-1, table.shape[1])
        self._table = torch.cat([table.float(), special])  # [rows, vocab]
        keys = torch.tensor([_fold_history(history) for history in histories], dtype=torch.int64)
        order = keys.argsort()
        self._explicit_keys = keys[order]
        self._explicit_rows = order + self._hashed_rows

    @classmethod
    def random(
        cls,
        seed: int,
        *,
        vocab_size: int,
        rows: int = 4096,
        spread: float = 2.0,
        eos_ids: frozenset[int] = frozenset(),
        pieces: Sequence[bytes | None] | None = None,
    ) -> "TableModel":
        """Logits drawn from a normal distribution of standard deviation `spread`; larger is more peaked."""
        generator = torch.Generator().manual_seed(seed)
        return cls(torch.randn(rows, vocab_size, generator=generator) * spread, eos_ids=eos_ids, pieces=pieces)

    @property
    def vocab_size(self) -> int:
        return int(self._table.shape[1])

    @cached_property
    def token_texts(self) -> TokenTexts:
        assert self._pieces is not None, "tokens of this table have no text"
        return TokenTexts.of(self._pieces)

    @property
    def device(self) -> torch.device:
        return self._table.device

    def next_logits(self, histories: Sequence[Sequence[int]]) -> Tensor:
        folded = torch.tensor([_fold_history(history) for history in histories], dtype=torch.int64)
        return self._logits(folded)

    @property
    def in_float32(self) -> "TableModel":
        return self

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        return score_by_histories(self.next_logits, windows, suffix_tokens, policies)

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> "TableSession":
        return TableSession(self, slots, entries)

    def tree_bytes_per_entry(self) -> int:
        return 8

    def _logits(self, folded: Tensor) -> Tensor:
        mixed = folded * _MIXER
        rows = ((mixed >> 17) ^ mixed).remainder(self._hashed_rows)
        if len(self._explicit_keys):
            place = torch.searchsorted(self._explicit_keys, folded).clamp(max=len(self._explicit_keys) - 1)
            rows = torch.where(self._explicit_keys[place] == folded, self._explicit_rows[place], rows)
        return self._table[rows]


class TableSession(EntryMemory):
    """Entry (s, e) holds the contribution of its token at its position; a history is the sum over its entries."""

    def __init__(self, model: TableModel, slots: int, entries: int) -> None:
        super().__init__(slots, entries, model.device)
        self._model = model

    def forward(self, batch: TreeBatch) -> Tensor:
        return self._model._logits(self._histories(batch))

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[Tensor]:
        return map(self._model._logits, torch.split(self._histories(batch), CHUNK))

    def _histories(self, batch: TreeBatch) -> Tensor:
        """Store the batch; the folded history of each output. [outputs]"""
        self._held[batch.slots, batch.entries] = (batch.token_ids + 1) * _powers(batch.positions)
        folded = torch.empty(len(batch.token_ids), dtype=torch.int64)
        beam_slots = batch.slots[: batch.beams]
        rows = batch.beam_rows
        seen = batch.ancestry[rows, batch.lanes]  # [beam queries, entries in use]
        if batch.columns is None:
            held = self._held[beam_slots, : seen.shape[-1]]
        else:
            held = self._held[beam_slots[:, None], batch.columns[rows]]
        folded[: batch.beams] = (seen * held).sum(-1)
        start = batch.beams
        for length in batch.prefix_lengths:
            slot = batch.slots[start]
            folded[start : start + length] = self._held[slot, :length].cumsum(0)
            start += length
        return folded[batch.outputs]


def _powers(positions: Tensor) -> Tensor:
    """m^position (mod 2⁶⁴), by repeated squaring."""
    result = torch.ones_like(positions)
    base = _MULTIPLIER
    remaining = positions.clone()
    while bool((remaining > 0).any()):
        result = torch.where((remaining & 1).bool(), result * base, result)
        base = _signed(base * base)
        remaining = remaining >> 1
    return result


def _fold_history(history: Sequence[int]) -> int:
    total, power = 0, 1
    for token in history:
        total = _signed(total + (token + 1) * power)
        power = _signed(power * _MULTIPLIER)
    return total


def _signed(value: int) -> int:
    """Wrap into the range of a signed 64-bit integer."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
