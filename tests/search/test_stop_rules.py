"""A search that stops early says what one to the end says: the engine and the reference, by brute force."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from byrote.search.base import SearchTask
from byrote.types import StopReason
from byrote.verdict import Verdict
from tests.search.cases import Case, Search, both, cases
from tests.search.test_engine_equals_reference import PLAIN
from tests.table import TableModel


@both
@settings(max_examples=60)
@given(case=cases(), threshold=st.sampled_from([0.001, 0.02, 0.1, 0.5, 1.0]))
def test_stopping_when_settled_never_changes_the_verdict(run: Search, case: Case, threshold: float) -> None:
    model, task, options = case
    stopping = replace(options, threshold=threshold, stop_rule="mass")
    early, full = run(model, task, stopping), run(model, task, replace(options, threshold=None))
    # Equal bounds up to rounding: leave out cases where τ lies on one of them.
    assume(
        all(
            abs(bound - threshold) > 1e-9
            for bound in (full.bounds.lower[-1], full.bounds.upper[-1], early.bounds.upper[-1])
        )
    )
    assert early.bounds.verdict(threshold) == full.bounds.verdict(threshold)
    assert early.token_evals <= full.token_evals


@both
def test_a_beam_below_the_threshold_goes_on_while_the_upper_bound_may_still_fall_below_it(run: Search) -> None:
    """After one step: beam 0.3, bank 0.3, τ = 0.5. Stopping there would say 'not shown'; the next steps rule it out."""
    impossible = 1e-30
    explicit = {
        (1,): [0.4, 0.3, 0.3 - 1e-9, impossible],
        (1, 1): [impossible, 0.1, impossible, 0.9],
        (1, 1, 3): [impossible, 0.05, impossible, 0.95],
    }
    logits = {history: [math.log(p) for p in row] for history, row in explicit.items()}
    model = TableModel(torch.zeros(1, 4), explicit=logits, eos_ids=frozenset({0}))
    policy = replace(PLAIN.policy, top_k=4)
    options = replace(PLAIN, policy=policy, beam_width=1, edit_budget=1, distance="hamming", threshold=0.5)
    outcome = run(model, SearchTask(7, (1,), (1, 1, 1)), options)
    assert outcome.stop_reason == StopReason.FINISHED
    assert outcome.bounds.verdict(0.5) == Verdict.RULED_OUT
    assert outcome.bounds.upper[-1] == pytest.approx(0.3 + 0.03 + 0.27 * 0.05, rel=1e-6)


@both
@settings(max_examples=60)
@given(case=cases(), threshold=st.sampled_from([0.001, 0.02, 0.1, 0.5, 1.0]))
def test_the_published_stop_rule_loses_no_extractable_window(run: Search, case: Case, threshold: float) -> None:
    model, task, options = case
    stopping = replace(options, threshold=threshold, stop_rule="published")
    early, full = run(model, task, stopping), run(model, task, replace(options, threshold=None))
    if early.stop_reason == StopReason.BELOW_THRESHOLD:
        assert full.bounds.lower[-1] < threshold
        assert early.bounds.verdict(threshold) != Verdict.EXTRACTABLE
    else:
        assert early.bounds == full.bounds
