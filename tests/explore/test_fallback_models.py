"""Bounds on a model that cannot attend through a mask, with so little memory that nodes are forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from byrote.explore import explorer as exploring
from byrote.explore.base import ExploreTask
from byrote.explore.explorer import Explorer
from byrote.explore.refinement import OrderName, RefineOptions, refine
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.history import HistorySession
from byrote.policy import Policy
from byrote.search.base import SearchTask
from byrote.verdict import Bounds
from tests.explore.estimator_cases import LIMITS, Case, watched, window_of
from tests.models.tiny import tiny_model
from tests.oracle import enumerate_tree
from tests.search import reference
from tests.search.test_engine_equals_reference import PLAIN

CLOSE = 1e-5
"""Float32 logits of a tiny model move by some 1e-6 with the shape of a forward."""


def fallback_case(**changes: Any) -> Case:
    torch_model = tiny_model("bloom", vocab_size=4, eos_token_id=None, bos_token_id=None)
    model = HuggingFaceModel(torch_model, None)
    assert isinstance(model.open_tree(1, 8), HistorySession)
    options = replace(
        PLAIN,
        policy=Policy(1.0, 4),
        beam_width=1,
        edit_budget=2,
        distance="levenshtein",
        record_frontier=True,
        **changes,
    )
    window = window_of((2, 0, 3, 1, 2))
    outcome = reference.search(model, SearchTask(0, window.prefix_ids, window.suffix_ids), options)
    return Case(model, window, options, outcome, enumerate_tree(model, window.prefix_ids, 5, options.policy))


@pytest.mark.filterwarnings("ignore:.*recomputed:UserWarning")
@pytest.mark.parametrize("order", ["mass", "tail", "width", "both"])
def test_bounds_hold_when_nodes_are_forgotten(order: OrderName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploring, "LANES", 6)
    case = fallback_case()
    steps: list[Bounds] = []
    options = RefineOptions(token_evals=100_000, threshold=None, order=order)
    pool = case.pool()
    exploration = watched(refine(pool, options, target_probs=case.target_probs), pool, steps)
    explorer = Explorer(case.model, case.options.policy, slots=1, limits=LIMITS, entries=0)
    ((_, refined),) = explorer.run([ExploreTask(0, case.window.prefix_ids, exploration)])
    inner_nodes = sum(4**depth for depth in range(1, 5))
    assert explorer.entries < inner_nodes / 4
    assert refined.token_evals > explorer.entries, "nothing was forgotten"
    truths = [case.tree.mass_within(case.window.suffix_ids, edits, "levenshtein") for edits in range(3)]
    for bounds in steps:
        for lower, truth, upper in zip(bounds.lower, truths, bounds.upper, strict=True):
            assert lower - CLOSE <= truth <= upper + CLOSE
    assert refined.bounds.lower == pytest.approx(truths, abs=CLOSE)
    assert refined.bounds.upper == pytest.approx(truths, abs=CLOSE)
