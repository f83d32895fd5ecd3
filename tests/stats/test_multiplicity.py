"""Holm's correction against the step-by-step rule it abbreviates."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byrote.stats.compare import holm

p_lists = st.lists(st.floats(0, 1), min_size=1, max_size=25)
significances = st.floats(0.001, 0.5)


def rejected_by_holm(p_values: list[float], significance: float) -> set[int]:
    """Step down: test the smallest at α/m, the next at α/(m − 1), …; stop at the first that passes."""
    rejected: set[int] = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] * (len(p_values) - step) > significance:
            break
        rejected.add(index)
    return rejected


@given(p_lists, significances)
def test_holm_rejects_what_the_step_down_rule_rejects(p_values: list[float], significance: float) -> None:
    assert set(np.flatnonzero(holm(p_values) <= significance)) == rejected_by_holm(p_values, significance)


@given(p_lists)
def test_adjusting_never_helps(p_values: list[float]) -> None:
    raw = np.array(p_values)
    assert np.all(raw <= holm(p_values) + 1e-15)
    assert np.all(holm(p_values) <= np.minimum(1, raw * raw.size) + 1e-15)


@given(p_lists, st.randoms())
def test_order_does_not_matter(p_values: list[float], random: object) -> None:
    order = list(range(len(p_values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert holm([p_values[i] for i in order]).tolist() == holm(p_values)[order].tolist()


@given(p_lists, st.integers(1, 5))
def test_tests_that_were_not_possible_stay_nan_and_are_not_counted(p_values: list[float], absent: int) -> None:
    mixed = holm([math.nan] * absent + p_values)
    assert np.isnan(mixed[:absent]).all()
    assert mixed[absent:].tolist() == holm(p_values).tolist()


def test_no_p_values_give_none() -> None:
    assert holm([]).size == 0
    assert np.isnan(holm([math.nan])).all()
