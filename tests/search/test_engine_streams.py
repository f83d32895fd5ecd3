"""The engine as a machine: memory bookkeeping, streams of any length, running out of memory, limits."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import ConfigError, ModelError, WindowError
from byrote.models.base import TreeBatch
from byrote.search import sizing
from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine, Stream
from byrote.search.tree import TreeCache
from tests.search.streams import MODEL, WatchedModel, all_at_once, assert_all_right, failing_at, many_tasks
from tests.search.test_engine_equals_reference import LIMITS, PLAIN, all_options, assert_same, models, task_lists
from tests.table import TableModel


def assert_batch_is_sound(batch: TreeBatch | None) -> None:
    """What the contract promises a session: each beam sees its own line of positions, and nobody writes twice."""
    if batch is None:
        return
    written = list(zip(batch.slots.tolist(), batch.entries.tolist(), strict=True))
    assert len(set(written)) == len(written)
    counts = torch.bincount(batch.slots[: batch.beams], minlength=len(batch.beam_counts))
    assert tuple(counts.tolist()) == batch.beam_counts
    for query in range(batch.beams):
        slot, lane, entry = int(batch.slots[query]), int(batch.lanes[query]), int(batch.entries[query])
        seen = batch.ancestry[slot, lane]
        positions = batch.entry_positions[slot][seen].sort().values.tolist()
        assert positions == list(range(int(batch.positions[query]) + 1))
        assert seen[entry]
        assert int(batch.ancestry[slot, : batch.beam_counts[slot], entry].sum()) == 1


@settings(max_examples=40)
@given(model=models, options=all_options(), tasks=task_lists(), slots=st.integers(1, 4))
def test_every_forward_keeps_the_contract(
    model: TableModel, options: SearchOptions, tasks: list[SearchTask], slots: int
) -> None:
    watched = WatchedModel(model, watch=assert_batch_is_sound)
    assert len(list(Engine(watched, options, slots=slots, limits=LIMITS).run(tasks))) == len(tasks)


def check_integrity(cache: TreeCache, slot: int, *, prefix_length: int, step: int, beams: int) -> None:
    """Every live lane sees its prefix, then exactly one entry per step, ending in an entry of its own."""
    rows = cache.ancestry[slot, :beams]
    assert not cache.ancestry[slot, beams:].any(), "a dead lane still holds entries"
    positions = cache.entry_positions[slot]
    for lane in range(beams):
        seen = positions[rows[lane]].sort().values.tolist()
        assert seen == list(range(prefix_length + step)), f"lane {lane} sees positions {seen}"
        own = int(cache.own_entry[slot, lane])
        assert rows[:, own].sum() == 1, "a fresh entry must belong to one lane"
        assert rows[lane, own], "a lane must see its own entry"
        assert int(positions[own]) == prefix_length + step - 1, "a lane's own entry is its newest"


@settings(max_examples=40)
@given(model=models, options=all_options(), tasks=task_lists(), slots=st.integers(1, 4))
def test_the_cache_is_intact_after_every_step(
    model: TableModel, options: SearchOptions, tasks: list[SearchTask], slots: int
) -> None:
    checks = 0
    launch = Stream.launch

    def checked(stream: Stream) -> None:
        nonlocal checks
        running = {task.key for task in stream.scheduler.in_flight}
        for place, slot in enumerate(stream.scheduler.active):
            if slot.task.key in running:
                prefix = len(slot.task.prefix_ids)
                check_integrity(stream.cache, place, prefix_length=prefix, step=slot.step, beams=slot.beams)
                checks += 1
        launch(stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "launch", checked)
        outcomes = list(Engine(model, options, slots=slots, limits=LIMITS).run(tasks))
    assert checks >= sum(outcome.stop_step - 1 for outcome in outcomes)


def test_check_integrity_notices_what_it_is_for() -> None:
    def fresh() -> TreeCache:
        cache = TreeCache(1, 2, 8, torch.device("cpu"))
        cache.admit(torch.tensor([0]), torch.tensor([3]), torch.tensor([5]))
        nobody = torch.tensor([[False, False]])
        cache.branch(torch.tensor([[0, 0]]), torch.tensor([[True, True]]), nobody, torch.tensor([3]))
        check_integrity(cache, 0, prefix_length=3, step=1, beams=2)
        return cache

    cache = fresh()
    cache.ancestry[0, 0, int(cache.own_entry[0, 1])] = True
    with pytest.raises(AssertionError, match="sees positions"):
        check_integrity(cache, 0, prefix_length=3, step=1, beams=2)
    cache = fresh()
    cache.ancestry[0, 1, 0] = False
    with pytest.raises(AssertionError, match="sees positions"):
        check_integrity(cache, 0, prefix_length=3, step=1, beams=2)
    with pytest.raises(AssertionError, match="a dead lane still holds entries"):
        check_integrity(fresh(), 0, prefix_length=3, step=1, beams=1)


def test_dead_entries_are_given_out_again() -> None:
    """A beam of one lane never needs more than its own line, however often siblings die."""
    cache = TreeCache(1, 3, TreeCache.worst_case_entries(2, 6, 3), torch.device("cpu"))
    cache.admit(torch.tensor([0]), torch.tensor([2]), torch.tensor([7]))
    reach = []
    for step in range(5):
        alive = torch.tensor([[True, True, True]])
        first = torch.zeros(1, 3, dtype=torch.int64)
        reach.append(int(cache.branch(first, alive, ~alive, torch.tensor([2 + step]))[0]))
        check_integrity(cache, 0, prefix_length=2, step=step + 1, beams=3)
    assert reach == [10, 11, 12, 13, 14]  # chain 7 + one ancestor per step + three newest


def test_a_cache_that_keeps_all_gives_out_no_entry_twice() -> None:
    cache = TreeCache(2, 3, TreeCache.worst_case_entries(2, 6, 3), torch.device("cpu"))
    cache.admit(torch.tensor([0, 1]), torch.tensor([2, 2]), torch.tensor([7, 7]))
    alive = torch.ones(2, 3, dtype=torch.bool)
    reach: list[list[int]] = []
    given_out: list[list[int]] = [[], []]
    for step in range(5):
        positions = torch.tensor([2 + step, 2 + step])
        first = torch.zeros(2, 3, dtype=torch.int64)
        reach.append(cache.branch(first, alive, ~alive, positions, keeps_all=True).tolist())
        for slot in range(2):
            given_out[slot] += cache.own_entry[slot].tolist()
            check_integrity(cache, slot, prefix_length=2, step=step + 1, beams=3)
    assert given_out == [list(range(7, 22))] * 2
    assert reach == [[10, 10], [13, 13], [16, 16], [19, 19], [22, 22]]


def test_the_engine_takes_no_window_before_it_has_a_slot() -> None:
    """Five thousand windows through 40 slots: never more than 40 are taken and not yet returned."""
    slots, outstanding, most = 40, 0, 0

    def watched() -> Iterator[SearchTask]:
        nonlocal outstanding, most
        for task in many_tasks(5_000):
            outstanding += 1
            most = max(most, outstanding)
            yield task

    options = replace(PLAIN, record_frontier=False, keep=0, threshold=0.05)
    seen = set()
    for outcome in Engine(MODEL, options, slots=slots, limits=LIMITS).run(watched()):
        outstanding -= 1
        seen.add(outcome.key)
    assert len(seen) == 5_000
    assert outstanding == 0
    assert most == slots


def test_an_engine_serves_any_number_of_streams() -> None:
    engine = Engine(MODEL, PLAIN, slots=3, limits=LIMITS)
    first, second = ({o.key: o for o in engine.run(many_tasks(9))} for _ in range(2))
    assert first.keys() == second.keys()
    for key, outcome in first.items():
        assert_same(outcome, second[key])
    assert list(engine.run([])) == []


def test_a_session_that_starts_too_small_is_grown() -> None:
    model = WatchedModel(MODEL)
    model.first_entries = 1
    options = replace(PLAIN, beam_width=6)
    tasks = many_tasks(20)
    assert_all_right(Engine(model, options, slots=4, limits=LIMITS).run(tasks), tasks, options)


def refuse_more_than(most: int) -> Callable[[TreeBatch | None], None]:
    """Out of memory whenever more than `most` windows are evaluated at once."""

    def watch(batch: TreeBatch | None) -> None:
        if batch is not None and max(len(batch.beam_counts), len(batch.prefix_lengths)) > most:
            raise torch.OutOfMemoryError("CUDA out of memory (pretended)")

    return watch


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_out_of_memory_halves_the_slots_and_loses_nothing(most: int) -> None:
    tasks = many_tasks(25)
    engine = Engine(WatchedModel(MODEL, watch=refuse_more_than(most)), PLAIN, slots=8, limits=LIMITS)
    assert_all_right(list(engine.run(tasks)), tasks)
    assert most / 2 < engine.slots <= most


def test_out_of_memory_while_opening_a_session_is_survived_too() -> None:
    def opening(slots: int) -> None:
        if slots > 2:
            raise torch.OutOfMemoryError("CUDA out of memory (pretended)")

    tasks = many_tasks(12)
    engine = Engine(WatchedModel(MODEL, opening=opening), PLAIN, slots=16, limits=LIMITS)
    assert_all_right(list(engine.run(tasks)), tasks)
    assert engine.slots == 2


@settings(max_examples=40)
@given(failing=st.sets(st.integers(0, 60), max_size=4), all_wait=st.booleans())
def test_out_of_memory_at_any_moment_loses_and_repeats_nothing(failing: set[int], all_wait: bool) -> None:
    """Where all windows wait from the beginning, forwards are launched before those that have ended are handed out."""
    tasks = many_tasks(40 if all_wait else 20)
    engine = Engine(failing_at(failing), PLAIN, slots=16, limits=LIMITS)
    assert_all_right(list(all_at_once(engine, tasks) if all_wait else engine.run(tasks)), tasks)


def test_the_next_forward_is_launched_before_windows_that_ended_are_handed_out() -> None:
    forwards = 0

    def watch(batch: TreeBatch | None) -> None:
        nonlocal forwards
        forwards += batch is not None

    tasks = many_tasks(20)
    engine = Engine(WatchedModel(MODEL, watch=watch), PLAIN, slots=5, limits=LIMITS)
    engine.put(tasks)
    outcomes: list[SearchOutcome] = []
    while engine.waiting:
        before = forwards
        for outcome in engine.step():
            assert forwards > before or not engine.waiting
            outcomes.append(outcome)
    while engine.in_flight:
        outcomes += engine.step()
    assert_all_right(outcomes, tasks)


def test_a_window_that_does_not_fit_alone_is_an_error_in_one_sentence() -> None:
    engine = Engine(WatchedModel(MODEL, watch=refuse_more_than(0)), PLAIN, slots=4, limits=LIMITS)
    with pytest.raises(ModelError, match="a single window does not fit into the memory of the device"):
        list(engine.run(many_tasks(3)))


def test_slots_that_memory_cannot_hold_are_refused_before_a_session_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available_memory", lambda: 2**24)
    opened: list[int] = []
    model = WatchedModel(MODEL, opening=opened.append)
    with pytest.raises(ConfigError, match=r"2,000,000 slots would take .* GiB, but 14.4 MiB of memory can be used"):
        list(Engine(model, PLAIN, slots=2_000_000, limits=LIMITS).run(many_tasks(3)))
    assert not opened
    list(Engine(model, PLAIN, slots=200, limits=LIMITS).run(many_tasks(3)))
    assert opened == [200]


def test_a_window_beyond_the_models_context_is_refused_when_the_engine_opens() -> None:
    model = WatchedModel(MODEL)
    model.max_positions = 11
    Engine(model, PLAIN, slots=1, limits=Limits(6, 5))
    with pytest.raises(WindowError, match=r"prefix \+ suffix are 12 tokens, but the model takes at most 11"):
        Engine(model, PLAIN, slots=1, limits=Limits(6, 6))


@pytest.mark.parametrize(("prefix", "suffix"), [(0, 3), (3, 0), (7, 3), (3, 7)])
def test_a_window_outside_the_limits_is_refused_by_name(prefix: int, suffix: int) -> None:
    task = SearchTask(41, (1,) * prefix, (1,) * suffix)
    with pytest.raises(WindowError, match=rf"window 41 has {prefix} \+ {suffix} tokens"):
        list(Engine(MODEL, PLAIN, slots=2, limits=LIMITS).run([task]))


def test_token_evaluations_follow_the_published_count() -> None:
    """(T − 1)·B beams once the beam is full: flat model, everything viable. The verbatim one is not evaluated."""
    model = TableModel.random(0, vocab_size=5, spread=0.0)
    options = replace(PLAIN, policy=replace(PLAIN.policy, top_k=4), beam_width=4, distance="none")
    (outcome,) = Engine(model, options, slots=1, limits=LIMITS).run([SearchTask(0, (1,) * 6, (2,) * 6)])
    assert outcome.beams == 5 * 4
    assert 5 * 3 <= outcome.token_evals <= 5 * 4
