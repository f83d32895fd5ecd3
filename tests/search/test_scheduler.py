"""Slots: contiguous, filled in order, every window exactly once, whatever ends when."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.errors import ConfigError
from rote.search.base import SearchTask
from rote.search.scheduler import Scheduler, Slot
from tests.search.test_engine_equals_reference import PLAIN


def tasks(count: int) -> list[SearchTask]:
    return [SearchTask(key, (0,), (0, 1)) for key in range(count)]


@given(st.integers(0, 20), st.integers(1, 5), st.data())
def test_every_task_passes_once_and_moves_follow_the_slots(count: int, capacity: int, data: st.DataObject) -> None:
    """A mirror of the slots, kept only by following moves, always agrees with the scheduler."""
    scheduler = Scheduler(iter(tasks(count)), capacity)
    mirror: dict[int, int] = {}
    finished: Counter[int] = Counter()
    while True:
        for place in scheduler.admit():
            mirror[place] = scheduler.active[place].task.key
        assert [slot.task.key for slot in scheduler.active] == [mirror[p] for p in range(len(scheduler.active))]
        if not scheduler.active:
            break
        assert len(scheduler.active) <= capacity
        ended = data.draw(st.sets(st.integers(0, len(scheduler.active) - 1), min_size=1))
        finished.update(mirror[place] for place in ended)
        for move in scheduler.retire(ended):
            mirror[move.target] = mirror[move.source]
    assert finished == Counter(range(count))


def test_windows_are_admitted_in_order_and_no_earlier_than_there_is_room() -> None:
    taken: list[int] = []

    def watched() -> Iterator[SearchTask]:
        for task in tasks(5):
            taken.append(task.key)
            yield task

    scheduler = Scheduler(watched(), 2)
    assert scheduler.admit() == [0, 1]
    assert taken == [0, 1]
    assert scheduler.admit() == []
    scheduler.retire([0])
    assert scheduler.admit() == [1]
    assert [slot.task.key for slot in scheduler.active] == [1, 2]
    assert taken == [0, 1, 2]


def test_shrinking_gives_back_what_no_longer_fits_and_requeueing_comes_first() -> None:
    scheduler = Scheduler(tasks(6), 4)
    scheduler.admit()
    evicted = scheduler.shrink(1)
    assert [task.key for task in evicted] == [1, 2, 3]
    scheduler.requeue(evicted)
    order = []
    while scheduler.active:
        order.append(scheduler.active[0].task.key)
        scheduler.retire([0])
        scheduler.admit()
    assert order == [0, 1, 2, 3, 4, 5]


def test_requeueing_wakes_an_exhausted_scheduler() -> None:
    scheduler = Scheduler(tasks(1), 2)
    scheduler.admit()
    evicted = scheduler.shrink(0)
    scheduler.capacity = 1
    scheduler.requeue(evicted)
    assert scheduler.admit() == [0]


def test_a_slot_knows_its_last_step() -> None:
    slot = Slot(SearchTask(0, (0,), (0, 1, 2)))
    assert [Slot(slot.task, step=step).is_at_last_step for step in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beam_width": 0}, "beam width is 0"),
        ({"edit_budget": -1}, "edit budget is -1"),
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"threshold": 1.5}, "threshold is 1.5"),
    ],
)
def test_options_that_cannot_work_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(PLAIN, **change)  # type: ignore[arg-type]
