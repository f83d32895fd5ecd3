"""The screen: what is searched, what is not, and an audit that depends on nothing but windows, ratings and seed."""

import random
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.scan.run import screen_audit
from byrote.scan.stages import score
from byrote.scan.stages.screen import DENSITY_NEAR_FLOOR, audit_key, fraction_of, with_audit
from byrote.scan.stages.search import NearResult
from byrote.search.screen_score import log_score_table, screen_scores
from byrote.types import StopReason, Window
from tests.scan.streams import CONFIG, knowing_model, passed, random_windows
from tests.table import TableModel

KNOWN, UNKNOWN = 6, 60
WINDOWS = random_windows(KNOWN + UNKNOWN, seed=5)
MODEL: TableModel = knowing_model(WINDOWS[:KNOWN], seed=1)
FLOOR = 0.9
"""A floor that tells the known windows of this small model from most of the others."""


def options(*, share: float = 0.0, least: int = 5, seed: int = 0, floor: float = FLOOR) -> RunConfig:
    """Of a run of `WINDOWS`."""
    screened = replace(CONFIG, screen="auto", screen_floor=floor, screen_share=share, screen_min_windows=least)
    return with_audit(replace(screened, seed=seed, estimate="off"), len(WINDOWS))


def near_of(item: Measured) -> NearResult:
    assert item.near is not None
    return item.near


def measure(windows: list[Window], config: RunConfig) -> list[Measured]:
    """Results in the order in which they leave."""
    found = list(passed(MODEL, windows, config))
    assert sorted(item.window.window_id for item in found) == sorted(window.window_id for window in windows)
    return found


def is_audited(item: Measured) -> bool:
    return near_of(item).is_below_floor and near_of(item).outcome is not None


def audit_of(items: list[Measured]) -> set[str]:
    return {item.window.window_id for item in items if is_audited(item)}


def below_floor(items: list[Measured]) -> list[Measured]:
    return [item for item in items if near_of(item).is_below_floor]


def test_the_screen_splits_by_rating() -> None:
    items = measure(WINDOWS, options())
    assert 20 < len(below_floor(items)) < len(WINDOWS)
    for item in items:
        result = near_of(item)
        assert result.is_below_floor == (result.screen_score < FLOOR)
        assert result.is_below_floor or result.outcome is not None
    known = {window.window_id for window in WINDOWS[:KNOWN]}
    assert not known & {item.window.window_id for item in below_floor(items)}


def test_a_screened_window_keeps_its_verbatim_probability_and_claims_no_more() -> None:
    screened = [item for item in measure(WINDOWS, options()) if near_of(item).outcome is None]
    assert screened
    for item in screened:
        result = near_of(item)
        assert result.stop_reason == StopReason.SCREENED
        assert result.bounds.lower == (item.score.p,) * 2
        assert result.bounds.upper == (item.score.p, 1.0)
        assert (result.token_evals, result.stop_step) == (0, 0)


def expected_audit(items: list[Measured], config: RunConfig) -> set[str]:
    """The definition: every key below the share."""
    keys = {
        item.window.window_id: audit_key(config, item.window.window_id, near_of(item).screen_score)
        for item in below_floor(items)
    }
    return {name for name, key in keys.items() if key < config.screen_share}


@settings(max_examples=20, deadline=None)
@given(
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    least=st.sampled_from([0, 1, 7, 1000]),
    seed=st.integers(0, 3),
    order=st.integers(0, 5),
    slots=st.sampled_from([1, 3, 50]),
)
def test_the_audit_is_its_definition_whatever_the_order_and_the_slots(
    share: float, least: int, seed: int, order: int, slots: int
) -> None:
    config = replace(options(share=share, least=least, seed=seed), slots=slots)
    shuffled = random.Random(order).sample(WINDOWS, len(WINDOWS))
    items = measure(shuffled, config)
    assert audit_of(items) == expected_audit(items, config)
    assert least < len(WINDOWS) or audit_of(items) == {item.window.window_id for item in below_floor(items)}


@pytest.mark.parametrize(
    ("share", "least", "windows", "expected"),
    [
        (0.045, 100, 1_000, 0.1), (0.045, 100, 10_000, 0.045), (0.0, 5, 4, 1.0), (0.2, 0, 10, 0.2), (0.0, 0, 0, 0.0),
        (0.045, None, 60, 0.1), (0.045, None, 1_250, 0.08), (0.045, None, 10_000, 0.045), (0.3, None, 60, 0.3),
    ],
)  # fmt: skip
def test_the_audited_share_is_at_least_the_minimum_among_the_windows_of_the_run(
    share: float, least: int | None, windows: int, expected: float
) -> None:
    settled = with_audit(RunConfig(screen_share=share, screen_min_windows=least), windows)
    assert settled.screen_share == expected
    assert with_audit(settled, windows) == settled, "the options in a manifest mean the same run"


@settings(max_examples=20, deadline=None)
@given(
    share=st.sampled_from([0.0, 0.05, 0.5]),
    least=st.sampled_from([0, 1, 7, 1000]),
    order=st.integers(0, 5),
    chunk=st.integers(1, 30),
)
def test_workers_that_see_a_chunk_each_draw_the_audit_of_the_whole_run(
    share: float, least: int, order: int, chunk: int
) -> None:
    """The rows, too, are those of one process that saw all windows, whatever the order and the chunks."""
    config = options(share=share, least=least)
    pipeline = Pipeline(MODEL, config, decode=str)
    shuffled = random.Random(order).sample(WINDOWS, len(WINDOWS))
    chunks = [shuffled[first : first + chunk] for first in range(0, len(shuffled), chunk)]
    rows = {one.row["window_id"]: one.row for given in chunks for one in pipeline.run(given)}
    whole = {one.row["window_id"]: one.row for one in Pipeline(MODEL, config, decode=str).run(WINDOWS)}
    assert rows.keys() == whole.keys()
    for window_id, row in rows.items():
        expected = whole[window_id]
        assert row.keys() == expected.keys()
        for name, value in expected.items():
            assert row[name] == (pytest.approx(value) if isinstance(value, float) else value), name


def test_another_seed_draws_another_audit() -> None:
    assert audit_of(measure(WINDOWS, options(seed=0))) != audit_of(measure(WINDOWS, options(seed=1)))


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, KNOWN + UNKNOWN), max_size=4), share=st.sampled_from([0.0, 0.2]))
def test_the_audit_survives_resuming(cuts: list[int], share: float) -> None:
    """Each session measures what is missing and is killed after some results; what it finished is kept."""
    config = options(share=share)
    whole = {item.window.window_id: near_of(item) for item in measure(WINDOWS, config)}
    kept: dict[str, Measured] = {}
    for cut in [*cuts, None]:
        missing = [window for window in WINDOWS if window.window_id not in kept]
        finished = measure(missing, config)[:cut]
        kept |= {item.window.window_id: item for item in finished}
    assert kept.keys() == whole.keys()
    for window_id, item in kept.items():
        expected = whole[window_id]
        assert (near_of(item).stop_reason, near_of(item).bounds) == (expected.stop_reason, expected.bounds)


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_the_floor_can_let_everything_through_or_nothing(floor: float) -> None:
    items = measure(WINDOWS, options(floor=floor, least=0))
    assert len(below_floor(items)) == (0 if floor == 0 else sum(near_of(item).screen_score < 1 for item in items))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_screened_windows_leave_with_their_chunk(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever share of them is drawn, and whatever minimum was asked for."""
    monkeypatch.setattr(score, "CPU_CHUNK", 4)
    taken = left = most_held = 0

    def stream():  # type: ignore[no-untyped-def]
        nonlocal taken, most_held
        for number in range(600):
            taken += 1
            most_held = max(most_held, taken - left)
            yield replace(WINDOWS[number % len(WINDOWS)], window_id=f"w{number}")

    for _ in passed(MODEL, stream(), options(share=share, least=5)):
        left += 1
    assert left == 600
    assert most_held <= 4 + 4 + 4 + 1


def test_windows_near_the_floor_are_drawn_more_densely() -> None:
    """Deterministic: 4,000 ids at a share of 5 %, four times as many near the floor as far below it."""
    config = RunConfig(screen_floor=1e-6, seed=0)
    drawn = {
        rating: sum(audit_key(config, f"book.txt@{number}", rating) < 0.05 for number in range(4000))
        for rating in (5e-7, 1e-30)
    }
    assert 150 < drawn[1e-30] < 250
    assert 0.8 * DENSITY_NEAR_FLOOR < drawn[5e-7] / drawn[1e-30] < 1.2 * DENSITY_NEAR_FLOOR


RATINGS = [5e-7] * 150 + [1e-30] * 650
PLANTED = 30
"""Windows near the floor that are extractable, as a search would show."""


def audited_results(config: RunConfig) -> pl.DataFrame:
    """A run in which every window was rated below the floor: searched where the definition of the audit says so."""
    keys = [audit_key(config, f"w{number}", rating) for number, rating in enumerate(RATINGS)]
    is_audited = [key < config.screen_share for key in keys]
    return pl.DataFrame(
        {
            "window_id": [f"w{number}" for number in range(len(keys))],
            "screen_score": RATINGS,
            "was_screened": [True] * len(keys),
            "stop_reason": ["mass" if audited else "screened" for audited in is_audited],
            "mass_lower": [
                [0.0, 0.5 if number < PLANTED and audited else 0.0] for number, audited in enumerate(is_audited)
            ],
        }
    )


@pytest.mark.parametrize(("share", "least"), [(0.1, 0), (0.0, 100), (0.05, 100)])
def test_the_run_states_how_many_windows_a_search_would_have_certified(share: float, least: int) -> None:
    """Deterministic: 100 seeds. As a plain share, misses that lie near the floor would count twice or more."""
    errors, covered = [], 0
    for seed in range(100):
        config = replace(
            CONFIG, screen="auto", screen_floor=1e-6, screen_share=share, screen_min_windows=least, seed=seed
        )
        config = with_audit(config, len(RATINGS))
        results = audited_results(config)
        told = screen_audit(results.lazy(), config)
        assert told["searched_all_the_same"] == (results["stop_reason"] != "screened").sum() > 0
        missed = PLANTED - told["certified_in_sample"]
        errors.append(told["would_be_certified_expected"] - missed)
        covered += missed <= told["would_be_certified_at_most"]
        assert "Windows that a search would have left undecided are not counted" in told["meaning"]
    assert covered >= 92
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 10


def test_an_audit_that_searched_nothing_expects_nothing_and_rules_nothing_out() -> None:
    config = options(share=0.0, least=0, floor=1e-6)
    told = screen_audit(audited_results(config).lazy(), config)
    assert (told["would_be_certified_expected"], told["would_be_certified_at_most"]) == (None, len(RATINGS))
    assert "no screened window was searched" in told["reason"]


def test_a_window_that_its_verbatim_probability_shows_is_not_missed() -> None:
    config = options(share=1.0, least=0, floor=1e-6)
    results = audited_results(config).with_columns(pl.lit([0.5, 0.5]).alias("mass_lower"))
    assert screen_audit(results.lazy(), config)["certified_in_sample"] == 0


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=1, max_size=5),
    st.integers(0, 3),
)
def test_ratings_of_many_windows_are_those_of_each(probs: list[list[float]], budget: int) -> None:
    alone = [float(np.exp(log_score_table(window, budget)[0, -1])) for window in probs]
    assert screen_scores(probs, [budget] * len(probs)).tolist() == pytest.approx(alone, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("estimate", "windows", "share"),
    [("100", 1_000, 0.1), ("100", 50, 1.0), ("7", 0, 1.0), ("off", 1_000, 1.0), ("all", 1_000, 1.0)],
)
def test_a_number_of_estimates_is_a_share_of_the_windows_of_the_run(estimate: str, windows: int, share: float) -> None:
    settled = with_audit(RunConfig(estimate=estimate), windows)
    assert settled.estimate_share == share
    assert with_audit(settled, windows) == settled, "the options in a manifest mean the same run"


def test_about_as_many_windows_are_drawn_for_estimates_as_were_asked_for() -> None:
    """Deterministic: 10,000 ids. Whoever is drawn for an estimate is drawn into the audit of the screen before."""
    config = with_audit(RunConfig(estimate="300", screen_share=0.05), 10_000)
    names = [f"book.txt@{number}" for number in range(10_000)]
    drawn = {name for name in names if fraction_of(name, 0) < config.estimate_share}
    assert 250 < len(drawn) < 350
    assert drawn < {name for name in names if audit_key(config, name, 1e-30) < config.screen_share}
