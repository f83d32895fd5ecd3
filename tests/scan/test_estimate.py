"""Closing, refining and estimating after the search, from run options, against enumeration on table models."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.models.base import Stored
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.scan.row import ESTIMATE, NEAR
from byrote.scan.stages import estimate as after_search
from byrote.scan.stages import score
from byrote.scan.stages.estimate import AfterSearch
from byrote.scan.stages.score import ScoreStage
from byrote.scan.stages.screen import ScreenStage, fraction_of
from byrote.scan.stages.search import NearResult, SearchStage
from byrote.types import Split, Window
from byrote.verdict import Verdict
from tests.oracle import enumerate_tree
from tests.scan.streams import CONFIG, knowing_model, random_windows
from tests.table import TableModel, TableSession

OWN = {"search_lower", "open_mass", "eos_mass", "refuted_mass"}
TINY = 1e-6  # teacher-forced scores are float32
WINDOWS = [
    Window(f"w{number}", "text", Split.TARGET, 0, 0, 0, (1, 2), tuple(suffix))
    for number, suffix in enumerate(np.random.default_rng(3).integers(0, 3, (6, 4)).tolist())
]


def config_of(**changes: Any) -> RunConfig:
    small = {"prefix_tokens": 2, "suffix_tokens": 4, "top_k": 3, "beam_width": 1, "edit_budget": 1, "screen": "off"}
    return RunConfig(**(small | {"stop_rule": "off", "threshold": 0.1, "estimate": "all"} | changes))


def searched(model: TableModel, config: RunConfig) -> list[Measured]:
    """The windows after the search, with their frontiers and states."""
    hopeful, screened = ScreenStage(config).divide(ScoreStage(model, config).score(WINDOWS))
    stage = SearchStage(model, config)
    return [*stage.settle_unsearched(screened), *stage.search(hopeful), *stage.drain()]


def near_of(item: Measured) -> NearResult:
    assert item.near is not None
    return item.near


def processed(model: TableModel, items: list[Measured], config: RunConfig, slots: int | None = None) -> list[Measured]:
    """Copies of the items, processed: the originals keep what the search found."""
    stage = AfterSearch(model, config)
    stage.slots = slots
    return list(stage.process([replace(item) for item in items]))


def truths(model: TableModel, config: RunConfig, window: Window) -> list[float]:
    tree = enumerate_tree(model, window.prefix_ids, 4, config.policy)
    return [tree.mass_within(window.suffix_ids, edits, config.distance) for edits in range(config.edit_budget + 1)]


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    return config_of(
        pin=draw(st.booleans()),
        distance=draw(st.sampled_from(["levenshtein", "hamming", "none"])),
        viability=draw(st.sampled_from(["exact", "published"])),
        negligible=draw(st.sampled_from([0.0, 0.02])),
        max_children=draw(st.sampled_from([1, 2, 100])),
        stop_rule=draw(st.sampled_from(["off", "mass", "published"])),
        edit_budget=draw(st.integers(0, 2)),
        beam_width=draw(st.integers(1, 3)),
        top_k=draw(st.sampled_from([None, 2, 3])),
        top_p=draw(st.sampled_from([None, 0.8])),
        closure=draw(st.sampled_from([0, 3])),
        refine=draw(st.sampled_from([0, 8, 1000])),
        estimate=draw(st.sampled_from(["off", "undecided", "all", "3"])),
        estimate_share=draw(st.sampled_from([1.0, 0.5])),
        residual=draw(st.sampled_from([None, 60])),
    )


@settings(max_examples=60, deadline=None)
@given(config=configs(), seed=st.integers(0, 2000))
def test_bounds_only_tighten_and_enclose_the_truth_for_every_option(config: RunConfig, seed: int) -> None:
    model = TableModel.random(seed, vocab_size=4, eos_ids=frozenset({3}) if seed % 2 else frozenset())
    before = {item.window.window_id: item for item in searched(model, config)}
    after = processed(model, list(before.values()), config, slots=2) if config.needs_frontier else before.values()
    assert {item.window.window_id for item in after} == before.keys()
    for item in after:
        old, new = near_of(before[item.window.window_id]), near_of(item)
        for edits, truth in enumerate(truths(model, config, item.window)):
            assert old.bounds.lower[edits] - TINY <= new.bounds.lower[edits] <= truth + TINY
            assert truth - TINY <= new.bounds.upper[edits] <= old.bounds.upper[edits] + TINY
        assert new.bounds.lower[0] == new.bounds.upper[0] == item.score.p
        filled, first = NEAR.fill(item), NEAR.fill(before[item.window.window_id])
        assert filled.keys() >= OWN
        assert all(filled[name] == first[name] for name in OWN), "the search's account stays"
        assert new.verdict == new.bounds.verdict(config.threshold)
        is_drawn = fraction_of(item.window.window_id, config.seed) < config.estimate_share
        is_open = config.estimate != "undecided" or new.verdict == Verdict.NOT_SHOWN
        is_wanted = config.estimate != "off" and is_drawn and is_open
        assert (item.estimate is not None) == is_wanted == (item.sampled_verdict is not None)
        assert_limits_are_certified(item)
        assert new.token_evals - old.token_evals >= (item.estimate.token_evals if item.estimate else 0)


def assert_limits_are_certified(item: Measured) -> None:
    if item.estimate is not None:
        lower, upper = near_of(item).bounds.lower[-1], near_of(item).bounds.upper[-1]
        assert lower <= item.estimate.interval.low <= item.estimate.interval.high <= upper
        assert lower <= item.estimate.upper_limit <= upper
        assert np.isnan(item.estimate.value) or lower <= item.estimate.value <= upper


@pytest.mark.parametrize("lost", [{"pin": False}, {"stop_rule": "mass", "threshold": 0.5}], ids=["no pin", "stopped"])
def test_sampled_limits_know_a_target_that_the_search_lost(lost: dict[str, Any]) -> None:
    """The lower bound has p_z where what the search accepted has not; so has the estimate."""
    config = config_of(residual=60, **lost)
    for seed in range(20):
        model = TableModel.random(seed, vocab_size=4)
        for item in processed(model, searched(model, config), config):
            assert_limits_are_certified(item)


def test_estimates_are_unbiased_in_a_run() -> None:
    """6 windows, 30 seeds; the standardised sum of errors, |z| ≤ 4.5: a false alarm once in 150,000 runs."""
    model = TableModel.random(5, vocab_size=3, spread=1.0)
    for pin in (True, False):
        config = config_of(residual=40, pin=pin, stop_rule="mass")
        deviation, variance = 0.0, 0.0
        for item in searched(model, config):
            values = [estimate_of(model, item, replace(config, seed=seed)) for seed in range(30)]
            deviation += float(np.mean(values)) - truths(model, config, item.window)[-1]
            variance += float(np.var(values, ddof=1)) / 30
        assert abs(deviation) <= 4.5 * variance**0.5 + TINY


def estimate_of(model: TableModel, item: Measured, config: RunConfig) -> float:
    (after,) = processed(model, [item], config, slots=1)
    assert after.estimate is not None
    return after.estimate.value


def test_refinement_decides_verdicts_and_reports_what_it_found() -> None:
    model = TableModel.random(5, vocab_size=3, spread=1.0)
    config = config_of(refine=10_000, threshold=0.02)
    before = searched(model, config)
    after = processed(model, before, config)
    assert any(near_of(item).verdict == Verdict.NOT_SHOWN for item in before)
    assert all(near_of(item).verdict != Verdict.NOT_SHOWN for item in after)
    for item in after:
        outcome = near_of(item).outcome
        assert outcome is not None
        assert outcome.frontier is None, "frontiers are let go once they are used"
        log_ps = [continuation.log_p for continuation in outcome.continuations]
        assert log_ps == sorted(log_ps, reverse=True)
        paths = [continuation.token_ids for continuation in outcome.continuations]
        assert len(set(paths)) == len(paths) <= config.keep


def test_batches_and_slots_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TableModel.random(9, vocab_size=3)
    config = config_of(residual=50, refine=20, closure=2)
    items = searched(model, config)
    alone = {item.window.window_id: processed(model, [item], config, slots=1)[0] for item in items}
    monkeypatch.setattr(after_search, "CPU_BATCH_WINDOWS", 4)
    stage = AfterSearch(model, config)
    collected = [*stage.take(replace(item) for item in items), *stage.flush()]
    for item in collected:
        expected = alone[item.window.window_id]
        assert (item.estimate, near_of(item).bounds) == (expected.estimate, near_of(expected).bounds)
        assert item.token_evals == expected.token_evals


def test_windows_are_processed_before_their_states_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TableModel.random(9, vocab_size=3)
    config = config_of(refine=20)
    items = searched(model, config)
    outcomes = [near_of(item).outcome for item in items]
    sizes = [outcome.states.nbytes for outcome in outcomes if outcome is not None and outcome.states is not None]
    assert len(sizes) == len(items) >= 4
    monkeypatch.setattr(after_search, "free_memory", lambda device: (sizes[0] + sizes[1]) / after_search.HELD_SHARE)
    stage = AfterSearch(model, config)
    assert not list(stage.take(items[:1]))
    assert len(list(stage.take(items[1:2]))) == 2
    assert not list(stage.take(items[2:3]))
    assert len(list(stage.flush())) == 1


def test_windows_that_were_not_searched_have_no_estimate() -> None:
    model = TableModel.random(9, vocab_size=3)
    config = config_of(residual=50, screen="auto", screen_floor=1.0, screen_share=0.0, screen_min_windows=0)
    items = searched(model, config)
    assert all(near_of(item).outcome is None for item in items)
    assert set(ESTIMATE.fill(items[0]).values()) == {None}


@pytest.mark.parametrize("changes", [{}, {"screen": "auto", "screen_floor": 0.5}, {"measures": ("verbatim",)}], ids=str)
def test_chunks_that_are_begun_ahead_change_nothing(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of a chunk is launched before the rows of the chunk before are made, as on a GPU."""
    monkeypatch.setattr(score, "CPU_CHUNK", 5)
    windows = random_windows(23, seed=8)
    config = replace(CONFIG, **changes)
    model = knowing_model(windows[::3], seed=2)

    def rows(*, ahead: bool) -> dict[str, dict[str, object]]:
        pipeline = Pipeline(model, config, decode=str)
        pipeline.score.begins_ahead = ahead
        list(islice(pipeline.run(windows[::-1]), 2))  # a run that is given up leaves nothing behind
        return {found.row["window_id"]: found.row for found in pipeline.run(windows)}

    begun: list[str] = []
    launch = score.ScoreStage._launch

    def noted(stage: score.ScoreStage, batch: Any, *, first_slot: int) -> Any:
        begun.append(batch[0].window_id)
        return launch(stage, batch, first_slot=first_slot)

    monkeypatch.setattr(score.ScoreStage, "_launch", noted)
    expected, launched = rows(ahead=False), len(begun)
    assert rows(ahead=True) == expected
    if config.measures == ("verbatim",):  # whose rows are made behind the launch; the run that was given up had begun
        assert len(begun) == 2 * launched + 1


class Tight(TableModel):
    """Has no memory for the states of more than two windows at once."""

    def open_tree(self, slots: int, entries: int, *, longest: int | None = None) -> TableSession:
        session = super().open_tree(slots, entries, longest=longest)
        copy_in = session.copy_in

        def checked(into: Sequence[int], stored: Stored) -> None:
            if slots > 2:
                raise torch.OutOfMemoryError("CUDA out of memory (pretended)")
            copy_in(into, stored)

        session.copy_in = checked  # type: ignore[method-assign]
        return session


def test_states_that_do_not_fit_halve_the_slots_and_lose_nothing() -> None:
    config, table = config_of(residual=50), torch.randn(64, 3, generator=torch.Generator().manual_seed(9))
    model, tight = TableModel(table), Tight(table)
    items = searched(model, config)
    expected = {item.window.window_id: item.estimate for item in processed(model, items, config)}
    found = {item.window.window_id: item.estimate for item in processed(tight, items, config, slots=6)}
    assert found == expected


@pytest.mark.parametrize("sampled", [{"residual": 60}, {"estimate": "off"}, {"estimate": "undecided", "residual": 5}])
def test_sampling_does_not_move_certified_bounds_under_a_cap(sampled: dict[str, Any]) -> None:
    model = TableModel.random(5, vocab_size=4, spread=1.0)
    capped = {"top_k": None, "max_children": 2}
    plain, other = config_of(**capped), config_of(**(capped | sampled))
    bounds = [
        {item.window.window_id: near_of(item).bounds for item in searched(model, config)} for config in (plain, other)
    ]
    assert bounds[0] == bounds[1]
    assert any(item.estimate is not None for item in processed(model, searched(model, plain), plain))


def test_an_estimate_is_not_given_where_much_mass_was_not_listed() -> None:
    """Where one is given, what was not listed is too little to bias it."""
    model = TableModel.random(5, vocab_size=4, spread=1.0)
    capped = config_of(top_k=None, max_children=1, residual=100)
    items = processed(model, searched(model, capped), capped)
    assert items
    for item in items:
        assert item.estimate is not None
        assert np.isnan(item.estimate.value)
        assert np.isnan(item.estimate.standard_error)
        truth = truths(model, capped, item.window)[-1]
        assert item.estimate.interval.low - TINY <= truth <= item.estimate.interval.high + TINY
