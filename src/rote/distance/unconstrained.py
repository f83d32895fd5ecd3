"""No constraint: every partial continuation is viable (the baseline search). Distances are taken afterwards."""

import torch
from torch import Tensor

from rote.distance.base import Advanced, OneNumber


class Unconstrained(OneNumber):
    """Viability of the baseline: nothing is ever dropped, and no distance is known."""

    def pad(self, suffixes: list[tuple[int, ...]], length: int, device: torch.device) -> Tensor:
        return torch.zeros(len(suffixes), 1, dtype=torch.int64, device=device)

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        least = torch.zeros(tokens.shape, dtype=torch.int16, device=tokens.device)
        return Advanced(least[..., None], least)
