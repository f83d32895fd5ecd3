"""Viability rules of the token distances, and the distances of whole sequences.

A continuation is complete after as many tokens as the target has.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from byrote.distance.base import UNREACHABLE, Advanced, Viability, at_last, padded_rows
from byrote.types import ViabilityName


class Hamming(Viability):
    """Viability by mismatch count. Bound and distance coincide, since the verbatim tail adds none."""

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        target = padded.gather(1, (step - 1)[:, None])  # [slots, 1]
        mismatches = state[..., 0, None] + (tokens != target[:, :, None]).to(torch.int16)
        return Advanced(mismatches[..., None], mismatches, at_last(step, length, mismatches))


class Levenshtein(Viability):
    """Viability by a banded edit row. States are int16; cells outside band or target hold UNREACHABLE or more."""

    def __init__(self, budget: int, *, rule: ViabilityName) -> None:
        super().__init__(budget)
        self.rule = rule
        self.half_width = budget // 2 if rule == "exact" else budget
        self.width = 2 * self.half_width + 1

    def _offsets(self, device: torch.device) -> Tensor:
        """j − t of the band's cells; made on the device, because a copy would make the host wait."""
        return torch.arange(-self.half_width, self.half_width + 1, device=device)

    def initial(self) -> Tensor:
        offsets = self._offsets(torch.device("cpu"))
        return torch.where(offsets >= 0, offsets, UNREACHABLE).to(torch.int16)

    def pad(self, suffixes: Sequence[Sequence[int]], length: int) -> Tensor:
        return padded_rows(suffixes, length, margin=self.half_width + 1)

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        offsets = self._offsets(state.device)
        columns = step[:, None] + offsets  # [slots, width]: j of each band cell
        target = padded.gather(1, (columns + self.half_width).clamp(max=padded.shape[1] - 1))
        substitution = (tokens[..., None] != target[:, None, None, :]).to(torch.int16)
        diagonal = state[:, :, None, :] + substitution  # D[t−1, j−1] + mismatch
        row = diagonal.clone()
        if self.half_width:
            above = state[:, :, None, 1:] + 1  # D[t−1, j] + 1: one cell to the right in the shifted band
            row[..., :-1] = torch.minimum(diagonal[..., :-1], above)
        inside = (columns >= 0) & (columns <= length[:, None])  # [slots, width]
        at_zero = (columns == 0)[:, None, None, :]
        row = torch.where(at_zero, step.to(torch.int16)[:, None, None, None], row)
        row = torch.where(inside[:, None, None, :], row, UNREACHABLE)
        row = self._insertions(row, inside)
        least = (row + offsets.abs().to(torch.int16) if self.rule == "exact" else row).amin(-1)
        is_last = at_last(step, length, least)
        return Advanced(row, torch.where(is_last, row[..., self.half_width], least), is_last)

    def _insertions(self, row: Tensor, inside: Tensor) -> Tensor:
        """D[t, j] ≤ D[t, j−1] + 1, swept left to right over the few columns of the band."""
        columns = list(row.unbind(-1))
        for place in range(1, self.width):
            columns[place] = torch.minimum(columns[place], columns[place - 1] + 1)
        return torch.where(inside[:, None, None, :], torch.stack(columns, -1), UNREACHABLE)


class Unconstrained(Viability):
    """Viability of the baseline: nothing is ever dropped, and no distance is computed."""

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        least = torch.zeros(tokens.shape, dtype=torch.int16, device=tokens.device)
        return Advanced(least[..., None], least, at_last(step, length, least))


def hamming(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of positions that differ; the lengths must agree."""
    return sum(a != b for a, b in zip(left, right, strict=True))


def levenshtein(left: Sequence[int], right: Sequence[int]) -> int:
    """Wagner–Fischer, row by row."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def levenshtein_many(sequences: Tensor, target: Tensor) -> Tensor:
    """Distance of each row of `sequences` [count, length] to `target` [length']: Wagner–Fischer on whole rows."""
    columns = torch.arange(len(target) + 1, device=sequences.device)
    row = columns.expand(len(sequences), -1)  # [count, length' + 1]
    for step in range(sequences.shape[1]):
        substitution = row[:, :-1] + (sequences[:, step, None] != target)
        fresh = torch.cat([torch.full_like(row[:, :1], step + 1), torch.minimum(substitution, row[:, 1:] + 1)], 1)
        row = (fresh - columns).cummin(-1).values + columns  # insertions, swept left to right
    return row[:, -1]
