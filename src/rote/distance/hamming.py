"""Hamming distance: the running number of mismatches. Bound and distance coincide: the verbatim tail adds none."""

import torch
from torch import Tensor

from rote.distance.base import Advanced, OneNumber, padded_rows


class Hamming(OneNumber):
    """Viability by mismatch count; exact by nature, so there is no published variant."""

    def pad(self, suffixes: list[tuple[int, ...]], length: int, device: torch.device) -> Tensor:
        return padded_rows(suffixes, length).to(device)

    def advance(self, state: Tensor, tokens: Tensor, *, padded: Tensor, step: Tensor, length: Tensor) -> Advanced:
        target = padded.gather(1, (step - 1)[:, None])  # [slots, 1]
        mismatches = state[..., 0, None] + (tokens != target[:, :, None]).to(torch.int16)
        return Advanced(mismatches[..., None], mismatches)
