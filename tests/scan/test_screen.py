"""The screen: what is searched, what is not, and a sample that depends on nothing but windows and seed."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.models.table import TableModel
from rote.models.teacher_forcing import VerbatimScore
from rote.scan.near import NearResult, Screen, measure_near
from rote.types import StopReason
from tests.scan.streams import LIMITS, OPTIONS, WatchedStream, knowing_model, random_windows, scored

KNOWN, UNKNOWN = 6, 60
WINDOWS = random_windows(KNOWN + UNKNOWN, seed=5)
MODEL: TableModel = knowing_model(WINDOWS[:KNOWN], seed=1)
SCORES: list[VerbatimScore] = scored(MODEL, WINDOWS)
FLOOR = 0.9
"""A floor that tells the known windows of this small model from most of the others."""


def screen(*, share: float = 0.0, least: int = 5, seed: int = 0, floor: float = FLOOR) -> Screen:
    return Screen(floor=floor, sample_share=share, sample_least=least, seed=seed)


def measure(scores: list[VerbatimScore], chosen: Screen, *, slots: int = 3) -> list[NearResult]:
    """Results in the order in which they leave."""
    found: list[NearResult] = []
    measure_near(MODEL, scores, OPTIONS, threshold=0.001, screen=chosen, slots=slots, limits=LIMITS, emit=found.append)
    assert sorted(r.score.window.window_id for r in found) == sorted(s.window.window_id for s in scores)
    return found


def sample_of(results: list[NearResult]) -> set[str]:
    return {r.score.window.window_id for r in results if r.was_rated_below_floor and r.outcome is not None}


def below_floor(results: list[NearResult]) -> list[NearResult]:
    return [result for result in results if result.was_rated_below_floor]


def test_the_screen_splits_by_rating() -> None:
    results = measure(SCORES, screen())
    assert 20 < len(below_floor(results)) < len(SCORES)
    for result in results:
        assert result.was_rated_below_floor == (result.rating < FLOOR)
        assert result.was_rated_below_floor or result.outcome is not None
    known = {window.window_id for window in WINDOWS[:KNOWN]}
    assert not known & {result.score.window.window_id for result in below_floor(results)}


def test_a_screened_window_keeps_its_verbatim_probability_and_claims_no_more() -> None:
    screened = [result for result in measure(SCORES, screen()) if result.outcome is None]
    assert screened
    for result in screened:
        assert result.stop_reason == StopReason.SCREENED
        assert result.bounds.lower == (result.score.p,) * 2
        assert result.bounds.upper == (result.score.p, 1.0)
        assert (result.search_evals, result.stop_step) == (0, 0)


def expected_sample(results: list[NearResult], chosen: Screen) -> set[str]:
    """The definition: the `least` smallest hashes, and every hash below `share`."""
    ids = sorted((r.score.window.window_id for r in below_floor(results)), key=chosen.hash_fraction)
    return set(ids[: chosen.sample_least]) | {name for name in ids if chosen.hash_fraction(name) < chosen.sample_share}


@settings(max_examples=20)
@given(
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    least=st.sampled_from([0, 1, 7, 1000]),
    seed=st.integers(0, 3),
    order=st.integers(0, 5),
    slots=st.sampled_from([1, 3, 50]),
)
def test_the_sample_is_its_definition_whatever_the_order_and_the_slots(
    share: float, least: int, seed: int, order: int, slots: int
) -> None:
    chosen = screen(share=share, least=least, seed=seed)
    shuffled = random.Random(order).sample(SCORES, len(SCORES))
    results = measure(shuffled, chosen, slots=slots)
    assert sample_of(results) == expected_sample(results, chosen)
    assert len(sample_of(results)) >= min(least, len(below_floor(results)))


def test_another_seed_draws_another_sample() -> None:
    assert sample_of(measure(SCORES, screen(seed=0))) != sample_of(measure(SCORES, screen(seed=1)))


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, KNOWN + UNKNOWN), max_size=4), share=st.sampled_from([0.0, 0.2]))
def test_the_sample_survives_resuming(cuts: list[int], share: float) -> None:
    """Each session measures what is missing and is killed after some results; what it finished is kept."""
    chosen = screen(share=share)
    whole = {r.score.window.window_id: r for r in measure(SCORES, chosen)}
    kept: dict[str, NearResult] = {}
    for cut in [*cuts, None]:
        missing = [score for score in SCORES if score.window.window_id not in kept]
        finished = measure(missing, chosen)[:cut]
        kept |= {result.score.window.window_id: result for result in finished}
    assert kept.keys() == whole.keys()
    for window_id, result in kept.items():
        assert (result.stop_reason, result.bounds) == (whole[window_id].stop_reason, whole[window_id].bounds)


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_the_floor_can_let_everything_through_or_nothing(floor: float) -> None:
    results = measure(SCORES, screen(floor=floor, least=0))
    assert len(below_floor(results)) == (0 if floor == 0 else sum(result.rating < 1 for result in results))


def test_what_waits_for_the_sample_is_bounded() -> None:
    """Screened windows leave at once; only the guaranteed part of the sample and the slots are held."""
    stream = WatchedStream(SCORES)
    chosen = screen(least=5)
    measure_near(MODEL, stream, OPTIONS, threshold=0.001, screen=chosen, slots=3, limits=LIMITS, emit=stream.emit)
    assert stream.left == len(SCORES)
    assert stream.most_held <= 5 + 3 + 1


def test_hash_fractions_are_spread_over_the_unit_interval() -> None:
    """Deterministic: of 2,000 ids, each tenth of [0, 1) gets 140 to 260."""
    fractions = [screen().hash_fraction(f"book.txt@{number}") for number in range(2000)]
    counts = [sum(int(fraction * 10) == tenth for fraction in fractions) for tenth in range(10)]
    assert sum(counts) == 2000
    assert all(140 < count < 260 for count in counts)
