"""A step of the search, three times: as it is foreseen, as it was launched, and as the host has it.

Once it has arrived it is written down: records of the windows that go on, outcomes of those that ended. That takes the
host longer than some steps take the device, so steps may wait for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rote.models.memory import Handover
from rote.models.tree_attention import Seen
from rote.policy import Kept
from rote.search import outcome
from rote.search.base import SearchOptions, SearchOutcome
from rote.search.record import FrontierRecord
from rote.search.scheduler import Slot


class Foreseen(NamedTuple):
    """What is known of the next step before the host knows of this one, if the same windows take it."""

    kept: Kept
    tokens: Tensor  # [slots, lanes] int64: the newest of every beam
    positions: Tensor  # [slots] int64: where these tokens are in their sequences
    live: Seen | None
    """What all beams see, for the kernel of a GPU."""


class Pending(NamedTuple):
    """A step that was launched: which slots end by it, and what is on its way to the host."""

    finishing: list[int]
    finals: Handover
    tallies: Handover

    @property
    def has_arrived(self) -> bool:
        return self.finals.has_arrived and self.tallies.has_arrived


class Ended(NamedTuple):
    """A window whose search is over, and where it was searched."""

    place: int
    slot: Slot
    outcome: SearchOutcome


@dataclass(frozen=True, slots=True)
class Arrived:
    """The windows as they were when this step was counted: later steps give their places to others."""

    active: list[Slot]
    frontiers: list[FrontierRecord]
    finishing: list[int]
    going: list[int]
    stopping: list[int]
    tallies: list[NDArray[Any]]
    """The table of `outcome.tally` and, where frontiers are recorded, the fields of `Banked`."""
    finals: list[Tensor]

    def written(self, options: SearchOptions) -> Iterator[Ended]:
        """Record the step; the windows that ended by it, one at a time. Nothing here looks at the device."""
        if options.record_frontier and self.tallies:
            self._record()
        for row, place in enumerate(self.finishing):
            slot, finals = self.active[place], outcome.Finals(*self.finals)
            yield Ended(place, slot, outcome.finished(finals, row, slot, options, self.frontiers[place]))
        for place in self.stopping:
            slot = self.active[place]
            yield Ended(place, slot, outcome.stopped(self.tallies, place, slot, options, self.frontiers[place]))

    def _record(self) -> None:
        table, *banked = self.tallies
        beams, has_verbatim = table[:, :2].T.astype(np.int64)
        for place in self.going + self.stopping:
            evaluated = int(beams[place] - has_verbatim[place])
            self.frontiers[place].step(banked, place, beams=int(beams[place]), evaluated=evaluated)
