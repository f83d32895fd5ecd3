"""The contract of a viability rule: which partial continuations can still end within the edit budget.

A rule carries a small integer state per partial continuation. After each token it says which continuations are complete
and gives a lower bound on the distance of every completion, which is the distance itself for complete ones. A child
whose bound exceeds the budget has no completion in the ball and may be dropped without losing mass. Complete
continuations are a prefix-free set: none begins another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

UNREACHABLE = 10_000
"""Stands for 'outside the band' in int16 states: above any budget, and far from overflowing when edits are added."""


class Advanced(NamedTuple):
    """States and bounds after appending each candidate token to each partial continuation."""

    state: Tensor  # [slots, beams, kept, width] int16
    least: Tensor  # [slots, beams, kept] int16: no completion is nearer than this
    is_complete: Tensor  # [slots, beams, kept] bool
    if_ended: Tensor | None = None  # [slots, beams] int16: distance of a partial continuation whose text ends here
    """None where a continuation that ends too soon is in no ball."""


def padded_rows(suffixes: Sequence[Sequence[int]], length: int, *, margin: int = 0) -> Tensor:
    """Suffixes of at most `length` tokens as rows, −1 around them. [suffixes, margin + length + margin] int64"""
    rows = np.full((len(suffixes), length + 2 * margin), -1, dtype=np.int64)
    for row, suffix in zip(rows, suffixes, strict=True):
        row[margin : margin + len(suffix)] = suffix
    return torch.from_numpy(rows)


def at_last(step: Tensor, length: Tensor, like: Tensor) -> Tensor:
    """Whether tokens number `step` [slots] are the last of `length` [slots], in the shape of `like`."""
    return (step == length)[:, None, None].expand(like.shape)


class Viability:
    """One rule of one distance at one budget, batched over slots whose windows are at different steps. The state is one
    number, the distance so far, unless a rule needs more."""

    width: int = 1
    """Integers of state per partial continuation."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def initial(self) -> Tensor:
        """State of the empty continuation, on the host. [width] int16."""
        return torch.zeros(1, dtype=torch.int16)

    def pad(self, suffixes: Sequence[Sequence[int]], length: int) -> Tensor:
        """Target suffixes padded to `length` in the layout `advance` reads, on the host. [slots, …] int64."""
        return padded_rows(suffixes, length)

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        """Append `tokens` [slots, beams, kept] as token number `step` [slots] (counting from 1)."""
        raise NotImplementedError
