"""What the policy keeps after the nodes of verbatim paths: chains have evaluated them, so no forward asks again."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rote.models.memory import to_device
from rote.policy import Kept
from rote.search.beam import BeamState


class KnownPaths:
    """One verbatim path a slot. `width`: tokens that are listed after a node."""

    def __init__(self, slots: int, longest: int, width: int, device: torch.device) -> None:
        self._width, self._device, self._longest = width, device, longest
        self.kept = self._nothing(slots, longest)
        """[slots, longest suffix, kept]"""

    def put(self, slots: Tensor, kept: Kept) -> None:
        for known, theirs in zip(self.kept, kept, strict=True):
            known[slots, : theirs.shape[1]] = theirs

    def take_over(self, paths: Sequence[tuple[int, Kept]]) -> None:
        """Paths that others have evaluated, each for its slot: those of one length by a few kernels for all of them."""
        by_length: dict[int, list[tuple[int, Kept]]] = {}
        for slot, kept in paths:
            by_length.setdefault(len(kept.unlisted), []).append((slot, kept))
        for alike in by_length.values():
            slots = to_device(torch.tensor([slot for slot, _ in alike]), self._device)
            self.put(slots, Kept(*map(torch.stack, zip(*(kept for _, kept in alike), strict=True))))

    def move(self, sources: Tensor, targets: Tensor) -> None:
        for known in self.kept:
            known[targets] = known[sources]

    def next(self, state: BeamState, count: int) -> Kept:
        """What is kept after every lane of the first slots as far as it is known: lanes on a verbatim path."""
        is_verbatim, slots = state.is_verbatim[:count], torch.arange(count, device=self._device)
        # A window that has just ended has no next step; whatever is said of it is not asked.
        steps = state.step[:count].clamp(max=self._longest - 1)
        kept = self._nothing(count, is_verbatim.shape[1])
        for ours, known in zip(kept, self.kept, strict=True):
            where = is_verbatim.view(*is_verbatim.shape, *(1,) * (ours.dim() - 2))
            torch.where(where, known[slots, steps][:, None], ours, out=ours)
        return kept

    def _nothing(self, rows: int, columns: int) -> Kept:
        return Kept(
            torch.zeros(rows, columns, self._width, dtype=torch.int64, device=self._device),
            torch.full((rows, columns, self._width), -math.inf, dtype=torch.float64, device=self._device),
            torch.zeros(rows, columns, dtype=torch.float64, device=self._device),
        )
