"""Slots: contiguous, filled in order, every window exactly once, whatever ends when."""

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from byrote.search.base import SearchTask
from byrote.search.engine import Scheduler


def tasks(count: int) -> deque[SearchTask]:
    return deque(SearchTask(key, (0,), (0, 1)) for key in range(count))


@given(st.integers(0, 20), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_every_task_passes_once_and_moves_follow_the_slots(
    count: int, capacities: list[int], data: st.DataObject
) -> None:
    """Mirrors of the slots, kept only by following refills, always agree with schedulers that share a queue."""
    queue = tasks(count)
    schedulers = [Scheduler(queue, capacity) for capacity in capacities]
    mirrors: list[dict[int, int]] = [{} for _ in schedulers]
    finished: Counter[int] = Counter()
    is_running = True
    while is_running:
        is_running = False
        for scheduler, capacity, mirror in zip(schedulers, capacities, mirrors, strict=True):
            moves, admitted = scheduler.refill()
            assert not set(moves.values()) & set(admitted), "a new window is not moved"
            assert not set(moves.values()) & set(moves), "no slot is both a source and a target"
            for target, source in moves.items():
                mirror[target] = mirror[source]
            for place in admitted:
                mirror[place] = scheduler.active[place].task.key
            held = [slot.task.key for slot in scheduler.active]
            assert held == [mirror[place] for place in range(len(held))]
            assert held == [task.key for task in scheduler.in_flight]
            assert len(held) <= capacity
            if not held:
                continue
            is_running = True
            ended = data.draw(st.sets(st.integers(0, len(held) - 1), min_size=1))
            finished.update(mirror[place] for place in ended)
            scheduler.retire(ended)
            assert [task.key for task in scheduler.in_flight] == [k for p, k in enumerate(held) if p not in ended]
    assert finished == Counter(range(count))


def test_windows_are_admitted_in_order_as_there_is_room() -> None:
    queue = tasks(5)
    scheduler = Scheduler(queue, 2)
    assert scheduler.refill() == ({}, [0, 1])
    assert len(queue) == 3
    assert scheduler.refill() == ({}, [])
    scheduler.retire([0])
    assert scheduler.refill() == ({}, [0])
    assert [slot.task.key for slot in scheduler.active] == [2, 1]
    assert len(queue) == 2


def test_a_slot_moves_only_when_nothing_fills_the_hole() -> None:
    scheduler = Scheduler(tasks(5), 4)
    scheduler.refill()
    scheduler.retire([0, 2])
    assert scheduler.refill() == ({2: 3}, [0])
    assert [slot.task.key for slot in scheduler.active] == [4, 1, 3]


def test_a_window_starts_on_its_chain_with_nothing_to_evaluate() -> None:
    scheduler = Scheduler(deque([SearchTask(0, (1, 2, 3), (0,))]), 1)
    scheduler.refill()
    assert (scheduler.active[0].beams, scheduler.active[0].to_evaluate) == (1, 0)
