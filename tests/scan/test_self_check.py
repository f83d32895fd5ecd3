"""`verify` and `self_check`: what they say was looked at again is what was."""

from dataclasses import replace
from typing import Any

import pytest

from byrote.scan.stages import verify as self_check
from byrote.search.base import SearchOutcome, SearchTask
from byrote.search.engine import Engine
from byrote.types import StopReason
from byrote.verdict import Bounds
from tests.scan.streams import CONFIG, knowing_model, passed, random_windows

WINDOWS = random_windows(24)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"refine": 200, "keep": 1, "threshold": 0.3},
        {"closure": 50, "keep": 0},
        {"distance": "none", "estimate": "off"},
    ],
)
def test_the_share_scored_again_is_of_the_lower_bound(options: dict[str, Any]) -> None:
    config = replace(CONFIG, verify=True, **options)
    measured = list(passed(knowing_model(WINDOWS[:6]), WINDOWS, config))
    checked = [item for item in measured if item.verified is not None and item.near is not None]
    assert len(checked) >= 6
    for item in checked:
        assert item.verified is not None
        assert item.near is not None
        lower = item.near.bounds.lower[-1]
        # The table gives the same numbers again, so the mass is what it was.
        assert item.verified.verified_mass == pytest.approx(item.verified.share_of_lower * lower, rel=1e-9)
        # A search that stopped early has p_z from the first forward alone.
        is_whole = item.near.stop_reason is StopReason.FINISHED
        assert item.verified.share_of_lower >= self_check.VERIFIED_SHARE * is_whole


def test_windows_are_searched_again_with_the_ranking_of_the_run() -> None:
    model = knowing_model(WINDOWS[:6])
    options = replace(CONFIG, rank="screen_score", beam_width=2).search_options()
    scores = {item.window.window_id: item.score for item in passed(model, WINDOWS, CONFIG)}
    tasks = [
        SearchTask(key, window.prefix_ids, window.suffix_ids, scores[window.window_id].target_probs)
        for key, window in enumerate(WINDOWS)
    ]
    outcomes = sorted(Engine(model, options, slots=1, limits=CONFIG.limits).run(tasks), key=lambda one: one.key)
    again = self_check.searched(model, WINDOWS, options, slots=1, limits=CONFIG.limits)
    by_mass = self_check.searched(model, WINDOWS, replace(options, rank_by="mass"), slots=1, limits=CONFIG.limits)
    assert _lower(again) == pytest.approx(_lower(outcomes), rel=1e-9)
    assert _lower(by_mass) != pytest.approx(_lower(outcomes), rel=1e-9), "the two rankings can be told apart"


def test_what_moves_is_counted() -> None:
    model = knowing_model(WINDOWS[:6])
    options = replace(CONFIG, keep=50).search_options()
    before = self_check.searched(model, WINDOWS, options, slots=1, limits=CONFIG.limits)
    still = self_check.movement(before, before, CONFIG.threshold)
    assert (still["verdicts_changed"], still["largest_shift"], still["largest_lower_change"]) == (0, 0.0, 0.0)
    assert still["continuations_compared"] == sum(len(outcome.continuations) for outcome in before) > 0
    entries = len(before[0].bounds.lower)
    moved = [replace(outcome, bounds=Bounds((0.0,) * entries, (0.0,) * entries)) for outcome in before]
    found = self_check.movement(before, moved, CONFIG.threshold)
    assert found["largest_lower_change"] == max(_lower(before)) > 0
    assert found["verdicts_changed"] == sum(outcome.bounds.upper[-1] >= CONFIG.threshold for outcome in before) > 0


def _lower(outcomes: list[SearchOutcome]) -> list[float]:
    return [outcome.bounds.lower[-1] for outcome in outcomes]
