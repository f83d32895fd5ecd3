"""Screen: search only where the first forward leaves a chance, and audit that choice.

The screen is a heuristic: a screened window keeps lower = p_verbatim (a valid bound) and stop reason
`screened`. Some screened windows are searched all the same, so that a run can state how many of the others a
search would have certified. Which ones depends on the window, its screen score and the seed alone:

    key = hash of the window in (0, 1) / density(score)        drawn when key < share

Near the floor, where a miss is most likely, the density is higher. In a small run the share is raised before the first
window, so that it comes to `screen_min_windows` of the run's windows (`with_audit`): by default to 100, but to no more
than a tenth of them, so that the audit never takes most of the time. None of this depends on the order of windows, on
resuming or on how a run is divided.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.search.screen_score import screen_scores
from byrote.types import Window

NEAR_FLOOR = 1e-4
"""A score of at least this share of the floor is near it."""
DENSITY_NEAR_FLOOR = 4.0
"""Windows near the floor are drawn this many times as often."""


USUAL_MIN_WINDOWS = 100
LARGEST_RAISED_SHARE = 0.1
"""To which the usual number of windows raises the share at most."""


def density(config: RunConfig, score: float) -> float:
    return DENSITY_NEAR_FLOOR if score >= NEAR_FLOOR * config.screen_floor else 1.0


def fraction_of(window_id: str, seed: int) -> float:
    """A number in (0, 1) that follows from the window and the seed alone."""
    digest = hashlib.blake2b(window_id.encode(), digest_size=8, key=str(seed).encode()).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2**64


def audit_key(config: RunConfig, window_id: str, score: float) -> float:
    """Depends on the window, its score, the floor and the seed alone; the smaller, the sooner it is drawn."""
    return fraction_of(window_id, config.seed) / density(config, score)


def with_audit(config: RunConfig, windows: int) -> RunConfig:
    """The options of a run of at most so many windows, with the shares that numbers of windows come to: of screened
    windows at least `screen_min_windows` are searched, and estimates are made of the number asked for."""
    least = config.screen_min_windows
    raised = min(LARGEST_RAISED_SHARE, USUAL_MIN_WINDOWS / max(1, windows))
    if least is not None:
        raised = min(1.0, least / max(1, windows))
    share = max(config.screen_share, raised)
    estimated = config.estimate_share
    if config.estimate.isdigit():
        estimated = min(1.0, int(config.estimate) / max(1, windows))
    return replace(config, screen_share=share, estimate_share=estimated)


def is_below_floor(config: RunConfig, score: float) -> bool:
    """Whether the screen would keep a window of this score from the search; without a screen, none."""
    return config.screen != "off" and score < config.screen_floor


def _edits_in_tokens(config: RunConfig, window: Window) -> int:
    """The edit budget against this window's target, counted in tokens: of characters in proportion."""
    text = window.suffix_text
    return config.edits if text is None else config.edits * len(window.suffix_ids) // len(text)


class ScreenStage:
    """Scores windows and divides them."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def divide(self, scored: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
        """The windows to search, and those that are settled without a search."""
        passed: list[Measured] = []
        screened: list[Measured] = []
        config = self._config
        budgets = [_edits_in_tokens(config, item.window) for item in scored]
        scores = screen_scores([item.score.target_probs for item in scored], budgets).tolist()
        for item, score in zip(scored, scores, strict=True):
            item.screen_score = score
            is_searched = not is_below_floor(config, score)
            if not is_searched:
                item.density = density(config, score)
                is_searched = audit_key(config, item.window.window_id, score) < config.screen_share
            (passed if is_searched else screened).append(item)
        return passed, screened
