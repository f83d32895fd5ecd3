"""Steps that are prepared and launched ahead, before the host has recorded the last one: nothing changes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.models.base import TreeBatch
from byrote.models.tree_attention import WORD, Seen, as_bits, live_entries
from byrote.search.base import SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine, Stream
from tests.search.reference import search
from tests.search.streams import (
    MODEL,
    WatchedModel,
    all_at_once,
    assert_all_right,
    failing_at,
    many_tasks,
    tasks_for,
)
from tests.search.test_engine_equals_reference import LIMITS, PLAIN, all_options, assert_same, models
from tests.table import TableModel


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@settings(max_examples=30)
@given(failing=st.sets(st.integers(0, 60), max_size=4))
def test_out_of_memory_in_a_step_launched_ahead_loses_nothing(failing: set[int]) -> None:
    tasks = many_tasks(40)
    engine = Engine(failing_at(failing), PLAIN, slots=16, limits=LIMITS)
    assert_all_right(all_at_once(engine, tasks), tasks)


@pytest.mark.parametrize("taken", [1, 3])
def test_outcomes_that_a_caller_leaves_come_with_the_next_step(taken: int) -> None:
    tasks = many_tasks(60)
    engine = Engine(MODEL, PLAIN, slots=6, limits=LIMITS)
    engine.put(tasks)
    outcomes: list[SearchOutcome] = []
    while len(outcomes) < len(tasks):
        outcomes += islice(engine.step(), taken)
    assert_all_right(outcomes, tasks)


@settings(max_examples=30)
@given(
    model=models,
    options=all_options(),
    seed=st.integers(0, 99),
    slots=st.integers(1, 5),
    first_entries=st.sampled_from([None, 8]),
)
def test_what_is_listed_ahead_is_what_the_ancestry_says(
    model: TableModel, options: SearchOptions, seed: int, slots: int, first_entries: int | None
) -> None:
    """Also where a session grows: what was listed before it did is listed again."""
    tasks, watched = tasks_for(model, 12, seed=seed), WatchedModel(model, watch=assert_live_entries)
    watched.first_entries = first_entries
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "_has_kernel", True)
        engine = Engine(watched, options, slots=slots, limits=LIMITS)
        assert_all_right(all_at_once(engine, tasks), tasks, options, model)


def assert_live_entries(batch: TreeBatch | None) -> None:
    if batch is not None and batch.live is not None:
        lanes = max(batch.beam_counts)
        assert as_sets(batch.live, lanes) == as_sets(live_entries(batch.ancestry, None), lanes)


@pytest.mark.parametrize(("first_entries", "expected"), [(None, {True}), (8, {True, False})])
def test_windows_that_go_on_are_listed_ahead_unless_their_memory_grows(
    patch: pytest.MonkeyPatch, first_entries: int | None, expected: set[bool]
) -> None:
    """The chain is not foreseen; all steps are, as far as there was memory to list."""
    patch.setattr(Stream, "_has_kernel", True)
    listed: list[bool] = []
    watched = WatchedModel(MODEL, watch=lambda batch: listed.append(batch is not None and batch.live is not None))
    watched.first_entries = first_entries
    task = SearchTask(0, (1, 2, 3), (1, 2, 3, 4, 1, 2))
    options = replace(PLAIN, threshold=None, beam_width=4, edit_budget=4)
    (outcome,) = Engine(watched, options, slots=1, limits=LIMITS).run([task])
    assert_same(outcome, search(MODEL, task, options))
    assert set(listed[1:]) == expected


def as_sets(seen: Seen, lanes: int) -> list[set[tuple[int, int]]]:
    """For every row, the entries that the first lanes see, and which of them do."""
    seen_by = (seen.bits[:, 0] & (1 << lanes) - 1).tolist()
    listed = zip(seen.columns.tolist(), seen_by, seen.counts.tolist(), strict=True)
    return [{(entry, who) for entry, who in zip(row[:live], bits, strict=False) if who} for row, bits, live in listed]


@given(st.integers(1, 3), st.integers(1, 70), st.integers(1, 9), st.integers(0, 2**31))
def test_bits_say_who_sees_what(rows: int, lanes: int, entries: int, seed: int) -> None:
    sees = torch.rand(rows, lanes, entries, generator=torch.Generator().manual_seed(seed)) < 0.5
    bits = as_bits(sees)
    for lane in range(lanes):
        assert torch.equal(bits[:, lane // WORD] >> lane % WORD & 1 == 1, sees[:, lane])
