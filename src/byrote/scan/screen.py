"""Screen: search only where the first forward leaves a chance, and audit that choice.

The screen is a heuristic: a screened window keeps lower = p_verbatim (a valid bound) and stop reason
`screened`. Some screened windows are searched all the same, so that a run can state how many of the others a
search would have certified. Which ones depends on the window, its screen score and the seed alone:

    key = hash of the window in (0, 1) / density(score)        drawn when key < share

Near the floor, where a miss is most likely, the density is higher. In a small run the share is raised before the first
window, so that it comes to `screen_min_windows` of the run's windows (`with_audit`). None of this depends on the order
of windows, on resuming or on how a run is divided.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from byrote.scan.measure import Measured
from byrote.scan.options import RunConfig
from byrote.search.screen_score import screen_scores

NEAR_FLOOR = 1e-4
"""A score of at least this share of the floor is near it."""
DENSITY_NEAR_FLOOR = 4.0
"""Windows near the floor are drawn this many times as often."""
SAMPLED = 100
"""Windows of the audit that are sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """When to search: screen score ≥ `floor`, or drawn into the audit of screened windows."""

    floor: float
    audit_share: float
    seed: int

    def density(self, score: float) -> float:
        return DENSITY_NEAR_FLOOR if score >= NEAR_FLOOR * self.floor else 1.0

    def key(self, window_id: str, score: float) -> float:
        """Depends on the window, its score and the seed alone; the smaller, the sooner it is drawn."""
        digest = hashlib.blake2b(window_id.encode(), digest_size=8, key=str(self.seed).encode()).digest()
        fraction = (int.from_bytes(digest, "big") + 0.5) / 2**64
        return fraction / self.density(score)


def screen_of(config: RunConfig) -> Screen | None:
    if config.screen == "off":
        return None
    return Screen(floor=config.screen_floor, audit_share=config.screen_share, seed=config.seed)


def with_audit(config: RunConfig, windows: int) -> RunConfig:
    """The options of a run of at most so many windows, with the shares of screened windows that are searched and
    sampled: searched are at least `screen_min_windows` / windows; sampled is all of the audit while it is small, then
    about as many windows however large the run is."""
    sampled = config.screen_sampled
    if sampled is None:
        is_small = config.screen_share * windows <= max(config.screen_min_windows, SAMPLED)
        sampled = 1.0 if is_small else SAMPLED / windows
    share = min(1.0, max(config.screen_share, config.screen_min_windows / max(1, windows)))
    return replace(config, screen_share=share, screen_sampled=sampled)


def is_below_floor(config: RunConfig, score: float) -> bool:
    """Whether the screen would keep a window of this score from the search; without a screen, none."""
    return config.screen != "off" and score < config.screen_floor


def is_sampled(config: RunConfig, window_id: str, score: float) -> bool:
    """Whether an audited window is among those that are sampled if their search does not decide them. Depends on its
    key alone, not on what was found."""
    screen = screen_of(config)
    return screen is None or config.screen_sampled is None or screen.key(window_id, score) < config.screen_sampled


class ScreenStage:
    """Scores windows and divides them."""

    def __init__(self, config: RunConfig) -> None:
        self._screen, self._edit_budget = screen_of(config), config.edit_budget

    def divide(self, scored: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
        """The windows to search, and those that are settled without a search."""
        passed: list[Measured] = []
        screened: list[Measured] = []
        scores = screen_scores([item.score.target_probs for item in scored], self._edit_budget).tolist()
        for item, score in zip(scored, scores, strict=True):
            item.screen_score = score
            is_searched = self._screen is None or score >= self._screen.floor
            if self._screen is not None and not is_searched:
                item.density = self._screen.density(score)
                is_searched = self._screen.key(item.window.window_id, score) < self._screen.audit_share
            (passed if is_searched else screened).append(item)
        return passed, screened
