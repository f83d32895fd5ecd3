"""Forwards launched before anybody knows their beams: right or wrong, every number stays the same."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.models.base import TreeBatch
from byrote.models.hf.model import HuggingFaceModel
from byrote.models.table import TableModel
from byrote.search.base import Limits, SearchOptions, SearchTask
from byrote.search.engine import Engine, Forwards
from byrote.search.reference import search
from tests.models.tiny import tiny_model
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
def guessing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        always_guess(patch)
        yield


def always_guess(patch: pytest.MonkeyPatch) -> None:
    """Every step is guessed, likely or not: most guesses are wrong."""
    patch.setattr(Forwards, "_may_guess", True)
    patch.setattr(Forwards, "_is_steady", property(lambda self: True, lambda self, value: None), raising=False)


@settings(max_examples=60)
@given(
    model=models,
    options=all_options(),
    seed=st.integers(0, 99),
    slots=st.integers(1, 5),
    first_entries=st.sampled_from([None, 8]),
)
def test_outcomes_are_those_of_the_reference_however_wrong_the_guesses(
    model: TableModel, options: SearchOptions, seed: int, slots: int, first_entries: int | None
) -> None:
    tasks, watched = tasks_for(model, 30, seed=seed), WatchedModel(model)
    watched.first_entries = first_entries
    with pytest.MonkeyPatch.context() as patch:
        always_guess(patch)
        engine = Engine(watched, options, slots=slots, limits=LIMITS)
        assert_all_right(all_at_once(engine, tasks), tasks, options, model)


@settings(max_examples=30)
@given(failing=st.sets(st.integers(0, 60), max_size=4))
def test_a_guess_that_runs_out_of_memory_loses_nothing(failing: set[int]) -> None:
    tasks = many_tasks(40)
    with pytest.MonkeyPatch.context() as patch:
        always_guess(patch)
        engine = Engine(failing_at(failing), PLAIN, slots=16, limits=LIMITS)
        assert_all_right(all_at_once(engine, tasks), tasks)


DEEP = replace(PLAIN, threshold=None, beam_width=3, edit_budget=6)
"""Beams that never die."""


TASK = SearchTask(0, (1, 2, 3), (1, 2, 3, 4, 1, 2))
ENDLESS = TableModel.random(5, vocab_size=5, spread=2.0)
"""Has no token that ends a text."""


def test_windows_that_keep_their_beams_are_guessed_right(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Engine(ENDLESS, DEEP, slots=1, limits=LIMITS)
    list(plain.run([TASK]))
    monkeypatch.setattr(Forwards, "_may_guess", True)
    engine = Engine(ENDLESS, DEEP, slots=1, limits=LIMITS)
    (outcome,) = engine.run([TASK])
    assert_same(outcome, search(ENDLESS, TASK, DEEP))
    assert engine.counters.wrong_guesses == 0
    assert engine.counters.forwards == plain.counters.forwards, "no forward is made twice"


def test_the_device_has_a_forward_to_do_while_the_host_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `launch` as many forwards have been asked for as the host knows of steps, and one more."""
    monkeypatch.setattr(Forwards, "_may_guess", True)
    engine = Engine(ENDLESS, DEEP, slots=1, limits=LIMITS)
    engine.put([TASK])
    ahead: list[int] = []
    while engine.waiting or engine.in_flight:
        list(engine.step())
        assert engine._stream is not None
        if engine.in_flight:
            # The root is known, so the forward of the first step is missing.
            ahead.append(engine.counters.forwards - 1 - engine._stream.scheduler.active[0].step)
    assert ahead == [0, 0, 0, 1, 1, 0], "two alike before a guess, and nothing after the last step"


@pytest.mark.usefixtures("guessing")
def test_a_wrong_guess_writes_where_nobody_looks() -> None:
    """Not to the chain, whose last states a guess about the verbatim lane would make anew; not where others look."""
    dead: list[bool] = []
    on_chain: list[bool] = []
    chain = len(TASK.prefix_ids) + len(TASK.suffix_ids) - 1

    def watch(batch: TreeBatch | None) -> None:
        if batch is None or batch.prefix_lengths:
            return
        for slot, lane, entry in zip(*(t.tolist() for t in (batch.slots, batch.lanes, batch.entries)), strict=True):
            assert entry >= chain
            sees, others = batch.ancestry[slot, lane], batch.ancestry[slot].clone()
            others[lane] = False
            assert entry >= others.shape[1] or not others[:, entry].any()
            dead.append(not bool(sees.any()))
            on_chain.append(bool(sees.any()) and not bool(sees[chain:].any()))

    drawn = torch.randint(0, 5, (60, 9), generator=torch.Generator().manual_seed(1)).tolist()
    tasks = [SearchTask(key, tuple(row[:3]), tuple(row[3:])) for key, row in enumerate(drawn)]
    options = replace(PLAIN, pin_verbatim=True, negligible=0.02)  # beams die beside a verbatim path that lives
    engine = Engine(WatchedModel(MODEL, watch=watch), options, slots=6, limits=LIMITS)
    assert_all_right(all_at_once(engine, tasks), tasks, options)
    assert any(dead), "some guesses are about beams that died"
    assert any(on_chain), "some are about a verbatim path"
    assert engine.counters.wrong_guesses > 0


@pytest.mark.usefixtures("guessing")
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_wrong_guesses_spoil_nothing_of_a_real_model(architecture: str) -> None:
    """Lanes that see nothing leave numbers behind, also where attention is capped or padded to a rectangle."""
    model = HuggingFaceModel(tiny_model(architecture), None)
    options = replace(PLAIN, threshold=1e-9, beam_width=4, edit_budget=1)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, model.vocab_size, (6, 14), generator=generator).tolist()
    tasks = [SearchTask(key, tuple(row[:6]), tuple(row[6:])) for key, row in enumerate(ids)]
    engine = Engine(model, options, slots=3, limits=Limits(6, 8))
    for outcome in engine.run(tasks):
        expected = search(model, tasks[outcome.key], options)
        assert outcome.bounds.lower == pytest.approx(expected.bounds.lower, rel=1e-5)
        assert outcome.bounds.upper == pytest.approx(expected.bounds.upper, rel=1e-5)
