"""Slots: which window is where. Host-side bookkeeping only; tensors are moved by whoever owns them.

Active slots are always 0 … active − 1 when a step starts, so that every tensor can be used as a leading slice. A slot
whose window ends is refilled in place; only when no window is left does the last active slot move into the hole.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byrote.search.base import SearchTask


@dataclass(slots=True)
class Slot:
    """A window in flight: its task, how many tokens its beams hold, how many beams live, and what was evaluated."""

    task: SearchTask
    step: int = 0
    beams: int = 1
    has_verbatim: bool = True
    """Whether the last of the beams is the verbatim path, which the chain has evaluated already."""
    beams_alive: int = 0
    token_evals: int = 0

    @property
    def to_evaluate(self) -> int:
        return self.beams - self.has_verbatim

    @property
    def is_at_last_step(self) -> bool:
        return self.step + 1 == len(self.task.suffix_ids)


class Move(NamedTuple):
    source: int
    target: int


class Refill(NamedTuple):
    """What changed before a step: slots to move, in order, then slots that hold a new window."""

    moves: list[Move]
    admitted: list[int]


class TaskQueue:
    """Windows that wait for a slot."""

    def __init__(self) -> None:
        self._waiting: deque[SearchTask] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, tasks: Iterable[SearchTask]) -> None:
        self._waiting.extend(tasks)

    def take(self) -> SearchTask | None:
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, tasks: Iterable[SearchTask]) -> None:
        """These were taken but not finished; they come before all others."""
        self._waiting = deque([*tasks, *self._waiting])


class Scheduler:
    """Admits tasks in order into free slots and keeps the active ones contiguous."""

    def __init__(self, queue: TaskQueue, capacity: int) -> None:
        self.queue = queue
        self._capacity = capacity
        self._free: list[int] = []
        self.active: list[Slot] = []
        """Slots by place. Between `retire` and `refill` it still holds the windows that ended."""

    @property
    def in_flight(self) -> list[SearchTask]:
        return [slot.task for place, slot in enumerate(self.active) if place not in self._free]

    def count(
        self, beams: Sequence[int], has_verbatim: Sequence[int], stops: Sequence[int], *, finishing: set[int]
    ) -> tuple[list[int], list[int]]:
        """All windows but those that finish have taken a step and have so many beams; the places of those that go on,
        and of those that stop: without beams, or because they shall."""
        going: list[int] = []
        stopping: list[int] = []
        for place, slot in enumerate(self.active):
            if place in finishing:
                continue
            slot.step += 1
            slot.beams, slot.has_verbatim = beams[place], bool(has_verbatim[place])
            if slot.beams == 0 or stops[place]:
                stopping.append(place)
                continue
            going.append(place)
            slot.beams_alive += slot.beams
            slot.token_evals += slot.to_evaluate
        return going, stopping

    def retire(self, ended: Iterable[int]) -> None:
        """The windows at these places have ended; the next `refill` gives their slots away."""
        self._free = sorted({*self._free, *ended})

    def refill(self) -> Refill:
        """New windows into free slots, lowest first; holes that nothing fills are closed from the end."""
        admitted: list[int] = []
        while self._free or len(self.active) < self._capacity:
            task = self.queue.take()
            if task is None:
                break
            place = self._free.pop(0) if self._free else len(self.active)
            self.active[place : place + 1] = [Slot(task)]
            admitted.append(place)
        moves: list[Move] = []
        for place in reversed(self._free):
            last = len(self.active) - 1
            if place != last:
                self.active[place] = self.active[last]
                moves.append(Move(last, place))
            self.active.pop()
        self._free = []
        return Refill(moves, admitted)
