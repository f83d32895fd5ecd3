"""Screen: search only where the first forward says it may matter, and audit that choice.

The screen is a heuristic and says so: a screened window keeps lower = p_verbatim (a valid bound) and stop reason
`screened`. Some screened windows are searched all the same, so that a run can say how many of the others a search would
have certified. Which ones depends on the window, its rating and the seed alone:

    key = hash of the window in (0, 1) / density(rating)        drawn when key < share

Near the floor, where a miss is most likely, the density is higher. A guaranteed minimum is drawn besides: the windows
with the smallest keys. They are known only at the end of a run, so at most that many wait; none of this depends on the
order of windows, on resuming or on how a run is divided.
"""

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from rote.scan.measured import Measured
from rote.scan.options import RunConfig
from rote.scan.waiting_room import WaitingRoom
from rote.search.rating import ratings

NEAR_FLOOR = 1e-4
"""A rating of at least this share of the floor is near it."""
DENSITY_NEAR_FLOOR = 4.0
"""Windows near the floor are drawn this many times as often."""
SAMPLED = 100
"""Windows of the audit that are sampled."""


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """When to search: rating ≥ `floor`, or drawn into the audit of screened windows."""

    floor: float
    audit_share: float
    audit_least: int
    seed: int

    def density(self, rating: float) -> float:
        return DENSITY_NEAR_FLOOR if rating >= NEAR_FLOOR * self.floor else 1.0

    def key(self, window_id: str, rating: float) -> float:
        """Depends on nothing but the window, its rating and the seed; the smaller, the sooner it is drawn."""
        digest = hashlib.blake2b(window_id.encode(), digest_size=8, key=str(self.seed).encode()).digest()
        fraction = (int.from_bytes(digest, "big") + 0.5) / 2**64
        return fraction / self.density(rating)


def screen_of(config: RunConfig) -> Screen | None:
    if config.screen == "off":
        return None
    return Screen(
        floor=config.screen_floor,
        audit_share=config.screen_share,
        audit_least=config.screen_least,
        seed=config.seed,
    )


def with_sample(config: RunConfig, windows: int) -> RunConfig:
    """The options of a run of at most so many windows, with the share of screened windows that are sampled: all of the
    audit while it is small, then about as many however large the run is."""
    if config.screen_sampled is not None:
        return config
    is_small = config.screen_share * windows <= max(config.screen_least, SAMPLED)
    return replace(config, screen_sampled=1.0 if is_small else SAMPLED / windows)


def is_below_floor(config: RunConfig, rating: float) -> bool:
    """Whether the screen would keep a window of this rating from the search; without a screen, none."""
    return config.screen != "off" and rating < config.screen_floor


def is_sampled(config: RunConfig, window_id: str, rating: float) -> bool:
    """Whether an audited window is among those that are sampled if their search does not decide them. Depends on its
    key alone, not on what was found."""
    screen = screen_of(config)
    return screen is None or config.screen_sampled is None or screen.key(window_id, rating) < config.screen_sampled


class Minimum(Generic[Item]):
    """The windows with the `least` smallest keys: those that the share draws anyway, and the others, which wait here
    until no other window will come."""

    def __init__(self, least: int) -> None:
        self._left = least
        # Largest key first, so that the one to give up is on top.
        self._waiting: list[tuple[float, str, Item]] = []

    def draw(self, windows: int = 1) -> None:
        """So many windows below the floor were drawn by the share: their keys are smaller than any that waits."""
        self._left -= windows

    def wait(self, key: float, window_id: str, item: Item) -> None:
        heapq.heappush(self._waiting, (-key, window_id, item))

    @property
    def waiting(self) -> list[Item]:
        return [item for _, _, item in self._waiting]

    def given_up(self) -> list[Item]:
        """Windows that can no longer be among the smallest keys."""
        excess = len(self._waiting) - max(0, self._left)
        return [heapq.heappop(self._waiting)[-1] for _ in range(excess)]

    def rest(self) -> list[Item]:
        """Everything that waits, largest key first."""
        waiting, self._waiting = [item for _, _, item in sorted(self._waiting)], []
        return waiting


class Divided(NamedTuple):
    """What becomes of rated windows, those left out that wait until the run knows its minimum."""

    hopeful: list[Measured]
    settled: list[Measured]


class ScreenStage:
    """Rates windows and divides them. `audited`: screened windows that earlier openings of the run have searched.
    `room`: where chains of windows that wait are kept; without one they are evaluated again."""

    def __init__(self, config: RunConfig, *, audited: int = 0, room: WaitingRoom | None = None) -> None:
        self._room = room
        self._screen, self._edit_budget = screen_of(config), config.edit_budget
        self._least = config.screen_least - audited
        self.begin()

    def begin(self) -> None:
        """Nobody waits yet, also where windows of a run that was given up did."""
        self._minimum = Minimum[Measured](self._least)

    def divide(self, scored: Sequence[Measured], *, search_all: bool = False) -> Divided:
        """Who is searched now, and who is settled now; with `search_all` nobody is settled without a search."""
        hopeful: list[Measured] = []
        rated = ratings([item.score.target_probs for item in scored], self._edit_budget).tolist()
        for item, rating in zip(scored, rated, strict=True):
            item.rating = rating
            if self._screen is not None and rating < self._screen.floor:
                item.density = self._screen.density(rating)
            if search_all or self._screen is None or rating >= self._screen.floor:
                hopeful.append(item)
            elif (key := self._screen.key(item.window.window_id, rating)) < self._screen.audit_share:
                self._minimum.draw()
                hopeful.append(item)
            else:
                self._minimum.wait(key, item.window.window_id, item)
        settled = self._minimum.given_up()
        if self._room is not None:
            self._room.hold(self._minimum.waiting)
        else:
            for item in self._minimum.waiting:
                item.chain = None  # by the time it is searched, others have taken its place
        return Divided(hopeful, settled)

    def rest(self) -> list[Measured]:
        """The windows that complete the guaranteed minimum, once no other window will come."""
        return self._minimum.rest()
