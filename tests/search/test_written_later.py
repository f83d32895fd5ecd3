"""What the engine prepares before it knows of a step, and writes down after the next was launched: nothing changes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.models.base import Seen, TreeBatch
from byrote.models.table import TableModel
from byrote.models.tree_attention import WORD, as_bits, live_entries
from byrote.search import engine as stream
from byrote.search.base import SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine, Stream
from byrote.search.reference import search
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


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def hurry(patch: pytest.MonkeyPatch, answers: list[bool]) -> None:
    """A device that has done its next step whenever these say so."""
    said = cycle(answers)
    patch.setattr(Stream, "_is_waited_for", property(lambda self: self.pending is not None and next(said)))


@settings(max_examples=40)
@given(
    model=models,
    options=all_options(),
    seed=st.integers(0, 99),
    slots=st.integers(1, 5),
    answers=st.lists(st.booleans(), min_size=1, max_size=6),
)
def test_outcomes_do_not_depend_on_when_they_are_written_down(
    model: TableModel, options: SearchOptions, seed: int, slots: int, answers: list[bool]
) -> None:
    tasks = tasks_for(model, 30, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch, answers)
        engine = Engine(model, options, slots=slots, limits=LIMITS)
        assert_all_right(all_at_once(engine, tasks), tasks, options, model)


def test_a_device_that_always_waits_is_served_before_windows_are_handed_out(patch: pytest.MonkeyPatch) -> None:
    hurry(patch, [True])
    tasks = many_tasks(60)
    engine = Engine(MODEL, PLAIN, slots=6, limits=LIMITS)
    engine.put(tasks)
    outcomes, waiting = list[SearchOutcome](), list[int]()
    while engine.waiting or engine.in_flight:
        outcomes += engine.step()
        assert engine._stream is not None
        waiting.append(len(engine._stream._unwritten))
    assert_all_right(outcomes, tasks)
    assert max(waiting) == stream.MOST_UNWRITTEN, "as many steps wait as may, and no more"
    assert waiting[-1] == 0


@settings(max_examples=30)
@given(failing=st.sets(st.integers(0, 60), max_size=4), answers=st.lists(st.booleans(), min_size=1, max_size=4))
def test_out_of_memory_loses_nothing_of_what_waits_to_be_written_down(failing: set[int], answers: list[bool]) -> None:
    tasks = many_tasks(40)
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch, answers)
        engine = Engine(failing_at(failing), PLAIN, slots=16, limits=LIMITS)
        assert_all_right(all_at_once(engine, tasks), tasks)


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
