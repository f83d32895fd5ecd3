"""Small searches of any kind, by the engine and by the reference."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import strategies as st

from byrote.search.base import Limits, SearchOptions, SearchOutcome, SearchTask
from byrote.search.engine import Engine
from tests.oracle import (
    Enumeration,
    enumerate_tree,
    textbook_hamming,
    textbook_levenshtein,
)
from tests.search import reference
from tests.search.test_engine_equals_reference import all_options
from tests.table import TableModel

TINY = 1e-12


def by_engine(model: TableModel, task: SearchTask, options: SearchOptions) -> SearchOutcome:
    """In company of two other windows, so that nothing depends on being alone."""
    others = [SearchTask(90, (1,), (0, 0, 1)), SearchTask(91, (2, 0), (1,))]
    engine = Engine(model, options, slots=2, limits=Limits(4, 5))
    return next(outcome for outcome in engine.run([others[0], task, others[1]]) if outcome.key == task.key)


both = pytest.mark.parametrize("run", [by_engine, reference.search], ids=["engine", "reference"])


Search = Callable[[TableModel, SearchTask, SearchOptions], SearchOutcome]


class Case(NamedTuple):
    model: TableModel
    task: SearchTask
    options: SearchOptions

    def enumerated(self) -> Enumeration:
        return enumerate_tree(self.model, self.task.prefix_ids, len(self.task.suffix_ids), self.options.policy)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A model of three or four tokens, a window of up to five, any variant of the search."""
    model = TableModel.random(
        draw(st.integers(0, 10_000)),
        vocab_size=draw(st.integers(3, 4)),
        spread=draw(st.sampled_from([0.0, 1.0, 3.0])),
        eos_ids=draw(st.sampled_from([frozenset[int](), frozenset({0}), frozenset({1, 2})])),
    )
    prefix = draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    suffix = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    probs = draw(st.lists(st.floats(0, 1), min_size=len(suffix), max_size=len(suffix)))
    return Case(model, SearchTask(7, tuple(prefix), tuple(suffix), tuple(probs)), draw(all_options()))


def measure_of(options: SearchOptions) -> Callable[[tuple[int, ...], tuple[int, ...]], int]:
    return textbook_hamming if options.distance == "hamming" else textbook_levenshtein
