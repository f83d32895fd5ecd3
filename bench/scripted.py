"""A causal model whose work is real and whose logits are scripted, so that a search's shape is known beforehand.

The model computes everything, head included; then its logits are replaced by rows of a script chosen by the
current token alone: behind a session for byrote (`ScriptedModel`), in the forward for others (`Scripted`).

A window's prefix ends in the first token of a chain. On a chain the next chain token has probability 0.9 and 39
deviations share the rest; every deviation leads back to the chain. A chain either goes on to the end (the window lives)
or turns into even chances at a given step (the window dies about four steps later).
"""

import math
import random
from collections.abc import Iterator
from typing import Any

import torch

from byrote.models.base import TreeBatch, TreeSession
from byrote.models.hf.model import HuggingFaceModel

TOP = 40
REGION = 2500
FIRST_REGION = 3000
LENGTH = 50
PREFIX = 50
FATAL_STEPS = (3, 4, 5, 6, 7)
"""Where the chances turn even; the published stop rule ends such a window about four steps later, so after 9 ± 2."""


class Scripted(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model
        self.config = model.config
        self.generation_config = model.generation_config
        vocabulary = model.config.vocab_size
        rows, row_of = script(vocabulary)
        self.register_buffer("rows", rows.to(model.device, model.dtype))
        self.register_buffer("row_of", row_of.to(model.device))

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def dtype(self) -> torch.dtype:
        return self.inner.dtype

    def get_output_embeddings(self) -> Any:
        return self.inner.get_output_embeddings()

    def forward(self, **inputs: Any) -> Any:
        output = self.inner(**inputs)
        wanted = self.row_of[inputs["input_ids"]]
        keep = inputs.get("logits_to_keep", 0)
        wanted = wanted[:, keep] if isinstance(keep, torch.Tensor) else wanted[:, -keep:] if keep else wanted
        output.logits = self.rows[wanted]
        return output


class ScriptedModel(HuggingFaceModel):
    """Everything through byrote's own path; only what a session returns is replaced."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, None, name="scripted")
        rows, row_of = script(model.config.vocab_size)
        self.rows, self.row_of = rows.to(model.device), row_of.to(model.device)

    eos_ids = frozenset[int]()

    def open_tree(self, slots: int, entries: int, **known: Any) -> Any:
        return ScriptedSession(super().open_tree(slots, entries, **known), self.rows, self.row_of)


class ScriptedSession:
    def __init__(self, inner: TreeSession, rows: torch.Tensor, row_of: torch.Tensor) -> None:
        self._inner, self._rows, self._row_of = inner, rows, row_of
        self.grow, self.move, self.copy_out, self.copy_in = inner.grow, inner.move, inner.copy_out, inner.copy_in

    @property
    def entries(self) -> int:
        return self._inner.entries

    def forward(self, batch: TreeBatch) -> torch.Tensor:
        self._inner.forward(batch)
        return self._rows[self._row_of[batch.token_ids[batch.outputs]]]

    def forward_in_chunks(self, batch: TreeBatch) -> Iterator[torch.Tensor]:
        wanted = self._row_of[batch.token_ids[batch.outputs]]
        first = 0
        for logits in self._inner.forward_in_chunks(batch):
            yield self._rows[wanted[first : first + len(logits)]]
            first += len(logits)


def script(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of logits and, for each token, which row follows it."""
    generator = torch.Generator().manual_seed(0)
    regions = len(FATAL_STEPS) + 1
    rows = torch.full((regions * (LENGTH + 1) + 1, vocabulary), -30.0)
    even = torch.randperm(2000, generator=generator)[:TOP]
    rows[-1, even] = torch.linspace(0, -0.01, TOP)
    row_of = torch.full((vocabulary,), len(rows) - 1)
    chain_logit = math.log(0.9 * (TOP - 1) / 0.1)
    for region in range(regions):
        fatal = FATAL_STEPS[region] if region < len(FATAL_STEPS) else LENGTH + 1
        for place in range(LENGTH + 1):
            row = region * (LENGTH + 1) + place
            if place < fatal:
                rows[row, deviations(region, place + 1)] = torch.linspace(0, -0.2, TOP - 1)
                rows[row, chain(region, place + 1)] = chain_logit
            else:
                rows[row] = rows[-1]
            row_of[chain(region, place)] = row
            row_of[deviations(region, place)] = row
    return rows, row_of


def chain(region: int, place: int) -> int:
    return FIRST_REGION + region * REGION + place


def deviations(region: int, place: int) -> torch.Tensor:
    start = FIRST_REGION + region * REGION + 100 + place * TOP
    return torch.arange(start, start + TOP - 1)


def windows(count: int, living_share: float, *, seed: int = 0) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(prefix, suffix) pairs; a `living_share` of them goes on to the end, the rest dies after 9 ± 2 steps."""
    draw = random.Random(seed)
    made = []
    for place in range(count):
        lives = (place * living_share) % 1 + living_share >= 1 or living_share >= 1
        region = len(FATAL_STEPS) if lives else draw.randrange(len(FATAL_STEPS))
        prefix = (*(draw.randrange(100, 2000) for _ in range(PREFIX - 1)), chain(region, 0))
        made.append((prefix, tuple(chain(region, step) for step in range(1, LENGTH + 1))))
    return made
