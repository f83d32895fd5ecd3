"""Searches over characters: the engine against the reference, whatever the grouping of windows."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.policy import Policy
from byrote.search.base import TOKENS_PER_TARGET_TOKEN, Limits, SearchOptions, SearchTask
from byrote.search.engine import Engine
from byrote.types import StopReason
from tests.distance.plain_text import plain_normal_form, text_of
from tests.scan.texts import PIECES, TEXTS
from tests.search.reference import search
from tests.search.test_engine_equals_reference import PLAIN, assert_same
from tests.table import TableModel

LIMITS = Limits(prefix_tokens=3, suffix_tokens=3 * TOKENS_PER_TARGET_TOKEN)
TEXT = replace(PLAIN, target_chars=40, keep=50)


@st.composite
def cases(draw: st.DrawFn) -> tuple[TableModel, SearchOptions, list[SearchTask]]:
    pieces = [None, *draw(st.lists(st.sampled_from(PIECES), min_size=2, max_size=4))]
    model = TableModel.random(
        draw(st.integers(0, 10_000)),
        vocab_size=len(pieces),
        spread=draw(st.sampled_from([0.0, 1.0, 4.0])),
        eos_ids=draw(st.sampled_from([frozenset[int](), frozenset({0})])),
        pieces=pieces,
    )
    options = replace(
        TEXT,
        policy=Policy(draw(st.sampled_from([0.7, 1.0])), draw(st.sampled_from([None, 1, 2]))),
        beam_width=draw(st.integers(1, 6)),
        edit_budget=draw(st.integers(0, 4)),
        pin_verbatim=draw(st.booleans()),
        negligible=draw(st.sampled_from([0.0, 0.02])),
        threshold=draw(st.sampled_from([None, 0.01, 0.3])),
        max_children=draw(st.sampled_from([None, 2])),
        policies=draw(st.sampled_from([(), (Policy(0.5, 1), Policy(1.3, 1, 0.8))])),
    )
    tasks = []
    for key in range(draw(st.integers(1, 4))):
        prefix = draw(st.lists(st.integers(0, len(pieces) - 1), min_size=1, max_size=3))
        suffix = draw(st.lists(st.integers(1, len(pieces) - 1), min_size=1, max_size=3))
        target = plain_normal_form(text_of(pieces, suffix))
        if not target or draw(st.booleans()):
            target = plain_normal_form("".join(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2))))
        tasks.append(SearchTask(key, tuple(prefix), tuple(suffix), target_chars=tuple(map(ord, target))))
    return model, options, tasks


@settings(max_examples=150, deadline=None)
@given(case=cases(), slots=st.integers(1, 4))
def test_the_engine_equals_the_reference(case: tuple[TableModel, SearchOptions, list[SearchTask]], slots: int) -> None:
    model, options, tasks = case
    outcomes = {outcome.key: outcome for outcome in Engine(model, options, slots=slots, limits=LIMITS).run(tasks)}
    assert sorted(outcomes) == [task.key for task in tasks]
    for task in tasks:
        assert_same(outcomes[task.key], search(model, task, options))
        outcome = outcomes[task.key]
        total = outcome.covered + outcome.open_mass + outcome.eos + outcome.refuted
        assert math.isclose(total, 1.0, rel_tol=1e-9)


def test_every_way_to_write_a_text_counts() -> None:
    """'ab' is one token or two, in either edition of the blank: the probability of the text is that of all of them."""
    pieces = [None, b"ab", b"a", b"b", b" ab"]
    row = [math.log(p) for p in (0.1, 0.3, 0.2, 0.15, 0.25)]
    model = TableModel(torch.tensor([row]), eos_ids=frozenset({0}), pieces=pieces)
    options = replace(TEXT, edit_budget=0, beam_width=20, policy=Policy(1.0, None))
    (outcome,) = Engine(model, options, slots=1, limits=LIMITS).run(
        [SearchTask(0, (0,), (1,), None, target_chars=(97, 98))]
    )
    assert outcome.bounds.lower[0] == pytest.approx(0.3 + 0.25 + 0.2 * 0.15)
    assert outcome.bounds.upper[0] == pytest.approx(0.3 + 0.25 + 0.2 * 0.15)
    assert outcome.stop_reason is StopReason.FINISHED
