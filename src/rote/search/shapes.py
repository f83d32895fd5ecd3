"""Shapes of attention, rounded up so that they repeat.

A CPU takes any shape, so only the entries are rounded, in small steps. On a GPU the fastest attention kernels are
planned anew for every shape, which takes tens of milliseconds; there few shapes must serve a whole run.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rote.models.base import TreeModel

CPU_ENTRY_STEP = 32
GPU_ENTRY_STEP = 64


class Shape(NamedTuple):
    slots: int
    lanes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Shapes:
    """How the shapes of one stream are rounded; `most` is the largest there is memory for."""

    most: Shape
    entry_step: int
    repeats: bool
    """Whether slots and lanes are rounded too."""

    @staticmethod
    def of(model: TreeModel, most: Shape) -> "Shapes":
        on_gpu = model.device.type == "cuda"
        return Shapes(most, GPU_ENTRY_STEP if on_gpu else CPU_ENTRY_STEP, repeats=on_gpu)

    def rounded_entries(self, entries: int) -> int:
        return min(self.most.entries, -(-entries // self.entry_step) * self.entry_step)

    def rounded(self, slots: int, lanes: int, entries: int) -> Shape:
        """The least shape that holds these and repeats: all lanes, and all slots or a half, a quarter … of them."""
        if not self.repeats:
            return Shape(slots, lanes, self.rounded_entries(entries))
        held = self.most.slots
        while held > 1 and -(-held // 2) >= slots:
            held = -(-held // 2)
        return Shape(held, self.most.lanes, self.rounded_entries(entries))
