"""Near-verbatim mass of a stream: bounds that hold, every window exactly once, whatever the slots and the order."""

import random
from dataclasses import replace

import pytest

from rote.models.table import TableModel
from rote.models.teacher_forcing import VerbatimScore
from rote.scan.near import NearResult, Screen, measure_near, with_verbatim
from rote.search.base import SearchOptions
from rote.types import Bounds, StopReason, Verdict, Window
from tests.oracle import true_mass
from tests.scan.streams import LIMITS, OPTIONS, POLICY, WatchedStream, knowing_model, random_windows, scored


def measure(
    model: TableModel,
    scores: list[VerbatimScore],
    *,
    options: SearchOptions = OPTIONS,
    screen: Screen | None = None,
    slots: int = 4,
) -> dict[str, NearResult]:
    found: dict[str, NearResult] = {}

    def emit(result: NearResult) -> None:
        assert result.score.window.window_id not in found, "every window exactly once"
        found[result.score.window.window_id] = result

    measure_near(model, scores, options, threshold=0.001, screen=screen, slots=slots, limits=LIMITS, emit=emit)
    return found


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    return random_windows(40)


@pytest.fixture(scope="module")
def model(windows: list[Window]) -> TableModel:
    return knowing_model(windows[:10])


@pytest.fixture(scope="module")
def scores(model: TableModel, windows: list[Window]) -> list[VerbatimScore]:
    return scored(model, windows)


def test_bounds_hold_the_enumerated_mass(model: TableModel, scores: list[VerbatimScore]) -> None:
    full = replace(OPTIONS, threshold=None)
    for result in measure(model, [*scores[:3], *scores[10:17]], options=full).values():
        window = result.score.window
        for budget, (lower, upper) in enumerate(zip(result.bounds.lower, result.bounds.upper, strict=True)):
            truth = true_mass(
                model, window.prefix_ids, window.suffix_ids, POLICY, budget=budget, distance="levenshtein"
            )
            assert lower - 1e-7 <= truth <= upper + 1e-7


@pytest.mark.parametrize("pin", [True, False])
@pytest.mark.parametrize("stop", [0.001, None])
def test_the_mass_at_distance_0_is_the_verbatim_probability_and_the_rest_what_the_search_found(
    model: TableModel, scores: list[VerbatimScore], pin: bool, stop: float | None
) -> None:
    options = replace(OPTIONS, pin_verbatim=pin, threshold=stop, beam_width=1)
    for result in measure(model, scores, options=options).values():
        assert result.bounds.lower[0] == result.bounds.upper[0] == result.score.p
        assert result.bounds.upper[-1] >= result.bounds.lower[-1] >= result.score.p
        assert result.outcome is not None
        found = result.outcome.bounds.lower
        assert result.bounds.lower == pytest.approx([result.score.p + mass - found[0] for mass in found], rel=1e-12)
        assert result.verdict == result.bounds.verdict(0.001)


def test_without_a_screen_every_window_is_searched(
    model: TableModel, scores: list[VerbatimScore], windows: list[Window]
) -> None:
    found = measure(model, scores)
    assert sorted(found) == sorted(window.window_id for window in windows)
    assert all(result.outcome is not None and result.search_evals > 0 for result in found.values())
    assert not any(result.was_rated_below_floor for result in found.values())
    assert StopReason.SCREENED not in {result.stop_reason for result in found.values()}


@pytest.mark.parametrize("slots", [1, 3, 100])
def test_results_do_not_depend_on_slots_or_order(model: TableModel, scores: list[VerbatimScore], slots: int) -> None:
    expected = measure(model, scores)
    shuffled = random.Random(slots).sample(scores, len(scores))
    found = measure(model, shuffled, slots=slots)
    assert found.keys() == expected.keys()
    for window_id, result in found.items():
        assert result.bounds == expected[window_id].bounds
        assert result.search_evals == expected[window_id].search_evals
        assert result.stop_reason == expected[window_id].stop_reason


def test_a_stream_is_consumed_as_slots_become_free_and_results_leave_at_once(
    model: TableModel, scores: list[VerbatimScore]
) -> None:
    """Memory stays flat: what was taken and has not left is at most the slots, whatever the length of the stream."""
    stream = WatchedStream(scores * 5)
    measure_near(model, stream, OPTIONS, threshold=0.001, screen=None, slots=4, limits=LIMITS, emit=stream.emit)
    assert stream.left == stream.taken == 5 * len(scores)
    # One more than the slots: the one being handed over.
    assert stream.most_held <= 5


def test_promise_gets_the_target_probabilities_and_changes_no_window(
    model: TableModel, scores: list[VerbatimScore]
) -> None:
    found = measure(model, scores, options=replace(OPTIONS, rank_by="promise"))
    assert len(found) == len(scores)
    assert all(min(result.bounds.lower) >= result.score.p for result in found.values())


def test_a_verbatim_path_that_was_lost_adds_to_what_was_found() -> None:
    assert with_verbatim(Bounds((0.0, 0.25), (0.5, 0.75)), 0.125) == Bounds((0.125, 0.375), (0.125, 0.75))
    stopped = with_verbatim(Bounds((0.0, 0.0), (0.125, 0.25)), 0.125)
    assert stopped == Bounds((0.125, 0.125), (0.125, 0.25))
    assert stopped.verdict(0.125) == Verdict.EXTRACTABLE


@pytest.mark.parametrize("rounding", [-(2.0**-20), 2.0**-20])
def test_of_two_roundings_of_the_verbatim_mass_only_the_teacher_forced_one_counts(rounding: float) -> None:
    """Found: 0.5 verbatim and 0.25 beside it. Neither rounding of 0.5 adds to the other, whichever is larger."""
    p_verbatim = 0.5 + rounding
    bounds = with_verbatim(Bounds((0.5, 0.75), (0.5, 0.75)), p_verbatim)
    assert bounds.lower == (p_verbatim, p_verbatim + 0.25)
    assert bounds.upper == (p_verbatim, max(0.75, p_verbatim + 0.25))


def test_roundings_never_make_more_than_certainty() -> None:
    assert with_verbatim(Bounds((0.5, 1.0), (0.5, 1.0)), 0.5 + 1e-7) == Bounds((0.5 + 1e-7, 1.0), (0.5 + 1e-7, 1.0))
