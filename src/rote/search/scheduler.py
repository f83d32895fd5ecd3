"""Slots: which window is where. Host-side bookkeeping only; tensors are moved by whoever owns them.

Active slots are always 0 … active − 1, so that every tensor can be used as a leading slice. A slot whose window ends
is refilled at once; when no window is left, the last active slot moves into the hole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rote.search.base import SearchTask


@dataclass(slots=True)
class Slot:
    """A window in flight: its task, how many tokens its beams hold, and how many beams live."""

    task: SearchTask
    step: int = 0
    beams: int = 1

    @property
    def is_at_last_step(self) -> bool:
        return self.step + 1 == len(self.task.suffix_ids)


class Move(NamedTuple):
    source: int
    target: int


class Scheduler:
    """Admits tasks in order into free slots and keeps the active ones contiguous."""

    def __init__(self, tasks: Iterable[SearchTask], capacity: int) -> None:
        self._waiting: Iterator[SearchTask] = iter(tasks)
        self._is_exhausted = False
        self.capacity = capacity
        self.active: list[Slot] = []

    def admit(self) -> list[int]:
        """Fill free slots from the queue; the slots that got a new window."""
        admitted: list[int] = []
        while len(self.active) < self.capacity and not self._is_exhausted:
            task = next(self._waiting, None)
            if task is None:
                self._is_exhausted = True
                break
            self.active.append(Slot(task))
            admitted.append(len(self.active) - 1)
        return admitted

    def retire(self, ended: Iterable[int]) -> list[Move]:
        """Free the slots of ended windows; the moves that keep active slots contiguous, in order."""
        moves: list[Move] = []
        for slot in sorted(ended, reverse=True):
            last = len(self.active) - 1
            if slot != last:
                self.active[slot] = self.active[last]
                moves.append(Move(last, slot))
            self.active.pop()
        return moves

    def shrink(self, capacity: int) -> list[SearchTask]:
        """Lower the capacity; windows that no longer fit are given back to be searched again from the start."""
        self.capacity = capacity
        evicted = [slot.task for slot in self.active[capacity:]]
        del self.active[capacity:]
        return evicted

    def requeue(self, tasks: list[SearchTask]) -> None:
        waiting = self._waiting

        def chained() -> Iterator[SearchTask]:
            yield from tasks
            yield from waiting

        self._waiting = chained()
        self._is_exhausted = False
