"""Closing, refining and estimating after the search, from run options, against enumeration on table models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.models.table import TableModel
from rote.models.teacher_forcing import score_verbatim
from rote.scan import after_search as estimate
from rote.scan.after_search import PostProcessed, PostProcessor, post_process
from rote.scan.columns import ESTIMATE, NEAR
from rote.scan.near import NearResult, measure_near
from rote.scan.options import RunConfig
from rote.types import Split, Verdict, Window
from tests.oracle import enumerate_tree

OWN = {"search_lower", "open_mass", "eos_mass", "refuted_mass"}
TINY = 1e-6  # teacher-forced scores are float32
WINDOWS = [
    Window(f"w{number}", "text", Split.TARGET, 0, 0, 0, (1, 2), tuple(suffix))
    for number, suffix in enumerate(np.random.default_rng(3).integers(0, 3, (6, 4)).tolist())
]


def config_of(**changes: Any) -> RunConfig:
    small = {"prefix_tokens": 2, "suffix_tokens": 4, "top_k": 3, "beam_width": 1, "edit_budget": 1, "screen": "off"}
    return RunConfig(**(small | {"stop_rule": "off", "threshold": 0.1} | changes))


def searched(model: TableModel, config: RunConfig) -> list[NearResult]:
    results: list[NearResult] = []
    measure_near(
        model,
        score_verbatim(model, WINDOWS, [config.policy], batch_windows=4),
        config.search_options(),
        threshold=config.threshold,
        screen=config.screen_options(),
        slots=3,
        limits=config.limits,
        emit=results.append,
    )
    return results


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
        residual=draw(st.sampled_from([0, 60])),
    )


@settings(max_examples=35)
@given(config=configs(), seed=st.integers(0, 2000))
def test_bounds_only_tighten_and_enclose_the_truth_for_every_option(config: RunConfig, seed: int) -> None:
    model = TableModel.random(seed, vocab_size=4, eos_ids=frozenset({3}) if seed % 2 else frozenset())
    before = {result.score.window.window_id: result for result in searched(model, config)}
    after = list(post_process(model, before.values(), config, slots=2))
    assert {processed.result.score.window.window_id for processed in after} == before.keys()
    for processed in after:
        window = processed.result.score.window
        old, new = before[window.window_id], processed.result
        for edits, truth in enumerate(truths(model, config, window)):
            assert old.bounds.lower[edits] - TINY <= new.bounds.lower[edits] <= truth + TINY
            assert truth - TINY <= new.bounds.upper[edits] <= old.bounds.upper[edits] + TINY
        assert new.bounds.lower[0] == new.bounds.upper[0] == new.score.p
        assert NEAR.fill(new).keys() >= OWN
        assert all(NEAR.fill(new)[name] == NEAR.fill(old)[name] for name in OWN), "the search's account stays"
        assert new.verdict == new.bounds.verdict(config.threshold)
        assert (processed.estimate is not None) == bool(config.residual)
        spent = processed.result.search_evals - before[window.window_id].search_evals
        assert spent >= (processed.estimate.token_evals if processed.estimate else 0)


def test_estimates_are_unbiased_in_a_run() -> None:
    """6 windows, 30 seeds; the standardised sum of errors, |z| ≤ 4.5: a false alarm once in 150,000 runs."""
    model = TableModel.random(5, vocab_size=3, spread=1.0)
    for pin in (True, False):
        config = config_of(residual=40, pin=pin, stop_rule="mass")
        results = searched(model, config)
        deviation, variance = 0.0, 0.0
        for result in results:
            values = [estimate_of(model, result, replace(config, seed=seed)) for seed in range(30)]
            deviation += float(np.mean(values)) - truths(model, config, result.score.window)[-1]
            variance += float(np.var(values, ddof=1)) / 30
        assert abs(deviation) <= 4.5 * variance**0.5 + TINY


def estimate_of(model: TableModel, result: NearResult, config: RunConfig) -> float:
    (processed,) = post_process(model, [result], config, slots=1)
    assert processed.estimate is not None
    return processed.estimate.value


def test_refinement_decides_verdicts_and_reports_what_it_found() -> None:
    model = TableModel.random(5, vocab_size=3, spread=1.0)
    config = config_of(refine=10_000, threshold=0.02)
    before = searched(model, config)
    after = list(post_process(model, before, config))
    assert any(result.verdict == Verdict.NOT_SHOWN for result in before)
    assert all(processed.result.verdict != Verdict.NOT_SHOWN for processed in after)
    for processed in after:
        outcome = processed.result.outcome
        assert outcome is not None
        assert outcome.frontier is None, "frontiers are let go once they are used"
        log_ps = [continuation.log_p for continuation in outcome.continuations]
        assert log_ps == sorted(log_ps, reverse=True)
        paths = [continuation.token_ids for continuation in outcome.continuations]
        assert len(set(paths)) == len(paths) <= config.keep


def test_batches_and_slots_change_nothing() -> None:
    model = TableModel.random(9, vocab_size=3)
    config = config_of(residual=50, refine=20, closure=2)
    results = searched(model, config)
    alone = {r.score.window.window_id: next(iter(post_process(model, [r], config, slots=1))) for r in results}
    collected: list[PostProcessed] = []
    processor = PostProcessor(model, config, collected.append, batch_windows=4)
    for result in results:
        processor.add(result)
    processor.flush()
    together = {processed.result.score.window.window_id: processed for processed in collected}
    assert together == alone
    assert set(collected[0].columns()) == {column.name for column in ESTIMATE.columns}


def test_windows_are_processed_before_their_states_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TableModel.random(9, vocab_size=3)
    config = config_of(refine=20)
    results = searched(model, config)
    sizes = [result.outcome.states.nbytes for result in results if result.outcome and result.outcome.states]
    assert len(sizes) == len(results) >= 4
    monkeypatch.setattr(estimate, "free_memory", lambda device: (sizes[0] + sizes[1]) / estimate.HELD_SHARE)
    collected: list[PostProcessed] = []
    processor = PostProcessor(model, config, collected.append)
    for count, result in enumerate(results[:3]):
        assert len(collected) == (2 if count == 2 else 0)
        processor.add(result)
    processor.flush()
    assert len(collected) == 3


def test_windows_that_were_not_searched_pass_through_without_an_estimate() -> None:
    model = TableModel.random(9, vocab_size=3)
    config = config_of(residual=50, screen="auto", screen_floor=1.0, screen_share=0.0, screen_least=0)
    results = searched(model, config)
    assert all(result.outcome is None for result in results)
    after = list(post_process(model, results, config))
    assert [processed.result for processed in after] == results
    assert after[0].columns()["mass_estimate"] is None
