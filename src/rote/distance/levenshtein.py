"""Levenshtein distance: a band of the Wagner–Fischer row, with the published and the exact viability rule.

D[t, j] is the distance between the first t continuation tokens and the first j target tokens. The state after t
tokens is the band D[t, t−h … t+h].

published: a child is viable while min_j D[t, j] ≤ ε; half-width h = ε; the distance D[T, T] is checked at the end.
exact:     both sequences have length T, so from cell (t, j) at least |j − t| more edits are needed and the verbatim
           tail needs no others: the least final distance is min_j D[t, j] + |j − t|. Only |j − t| ≤ ⌊ε/2⌋ can survive,
           because D[t, j] ≥ |j − t| too. Nothing is left to check at the end.
"""

import torch
from torch import Tensor

from rote.distance.base import UNREACHABLE, Advanced, padded_rows
from rote.types import ViabilityName


class Levenshtein:
    """Viability by a banded edit row. States are int16; cells outside band or target hold UNREACHABLE or more."""

    def __init__(self, budget: int, *, rule: ViabilityName) -> None:
        self.budget = budget
        self.rule = rule
        self.half_width = budget // 2 if rule == "exact" else budget

    @property
    def width(self) -> int:
        return 2 * self.half_width + 1

    def _offsets(self, device: torch.device) -> Tensor:
        """j − t of the band's cells; made on the device, because a copy would make the host wait."""
        return torch.arange(-self.half_width, self.half_width + 1, device=device)

    def initial(self, device: torch.device) -> Tensor:
        offsets = self._offsets(device)
        return torch.where(offsets >= 0, offsets, UNREACHABLE).to(torch.int16)

    def pad(self, suffixes: list[tuple[int, ...]], length: int, device: torch.device) -> Tensor:
        margin = self.half_width + 1
        return padded_rows(suffixes, length, margin=margin).to(device)

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
        return Advanced(row, self._least(row, offsets))

    def _insertions(self, row: Tensor, inside: Tensor) -> Tensor:
        """D[t, j] ≤ D[t, j−1] + 1, swept left to right over the few columns of the band."""
        columns = list(row.unbind(-1))
        for place in range(1, self.width):
            columns[place] = torch.minimum(columns[place], columns[place - 1] + 1)
        return torch.where(inside[:, None, None, :], torch.stack(columns, -1), UNREACHABLE)

    def _least(self, row: Tensor, offsets: Tensor) -> Tensor:
        if self.rule == "exact":
            row = row + offsets.abs().to(torch.int16)
        return row.amin(-1)

    def final_distance(self, state: Tensor) -> Tensor:
        return state[..., self.half_width]
