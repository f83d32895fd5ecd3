"""Units of independence against literal loops: which windows they hold, and what resampling them gives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.stats.clusters import (
    MOST_STRETCHES,
    Places,
    Units,
    block_units,
    choose_units,
    correlated_windows,
    document_units,
    long_units,
    stretch_units,
)
from byrote.stats.intervals import RateMethod


def members(units: Units) -> list[list[int]]:
    """Each unit's windows, read off its definition."""
    count = units.order.size
    return [
        [int(units.order[position % count]) for position in range(first, end)]
        for first, end in zip(units.firsts, units.ends, strict=True)
    ]


def book(windows: int, *, stride: int = 20, window_chars: int = 100) -> Places:
    return Places.of(["book"] * windows, np.arange(windows) * stride, window_chars=window_chars)


labels = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40)


@given(labels)
def test_each_document_is_one_unit_with_all_its_windows(documents: list[str]) -> None:
    units = document_units(Places.of(documents, np.zeros(len(documents), dtype=np.int64), window_chars=5))
    expected = {name: [i for i, other in enumerate(documents) if other == name] for name in documents}
    assert sorted(members(units)) == sorted(expected.values())
    assert units.drawn == len(expected)


@given(labels, st.integers(0, 2**32 - 1))
def test_unit_sums_equal_a_literal_loop(documents: list[str], seed: int) -> None:
    generator = np.random.default_rng(seed)
    starts = generator.integers(0, 500, size=len(documents))
    values = generator.normal(size=len(documents))
    places = Places.of(documents, starts, window_chars=20)
    for units in (document_units(places), block_units(places)):
        literal = [math.fsum(values[i] for i in unit) for unit in members(units)]
        assert units.sums(values) == pytest.approx(literal, abs=1e-9)
        assert all(len(set(unit)) == len(unit) for unit in members(units))


@given(st.integers(30, 300))
def test_every_window_of_a_book_is_in_equally_many_blocks(windows: int) -> None:
    places = book(windows)
    appearances = np.bincount([i for unit in members(block_units(places)) for i in unit], minlength=windows)
    # Starts are three characters apart, so counts may differ by the rounding of one start at each edge.
    assert appearances.max() - appearances.min() <= 2


def test_blocks_hold_the_windows_that_begin_within_them() -> None:
    units = block_units(book(120))
    assert units.block_chars == 248
    starts_line = np.arange(120) * 20
    for unit in members(units):
        first = unit[0]
        inside = {(first + step) % 120 for step in range(len(unit))}
        assert set(unit) == inside
        run = [i for i in unit if i >= first]
        assert starts_line[run[-1]] - starts_line[first] < 248


def test_variance_over_documents_is_the_jackknife_that_leaves_out_one_document_at_a_time() -> None:
    generator = np.random.default_rng(3)
    documents = generator.integers(0, 7, size=60)
    values = generator.random(60)
    units = document_units(Places.of(documents, np.zeros(60, dtype=np.int64), window_chars=1))
    groups = np.unique(documents)
    without = [float(values[documents != group].mean()) - float(values.mean()) for group in groups]
    jackknife = (groups.size - 1) / groups.size * math.fsum(each * each for each in without)
    assert units.variance_of_mean(values) == pytest.approx(jackknife, rel=1e-12)


def test_degrees_of_freedom_are_those_of_equal_documents_that_weigh_as_much() -> None:
    def degrees(*sizes: int) -> float:
        ids = np.repeat(np.arange(len(sizes)), sizes)
        return document_units(Places.of(ids, np.zeros(ids.size, dtype=np.int64), window_chars=1)).degrees

    assert degrees(5, 5, 5, 5) == pytest.approx(3.0)
    assert degrees(8, 4, 4) == pytest.approx(16**2 / 96 - 1)
    assert degrees(1000, 1, 1) == 1.0, "one document is nearly everything: no fewer than one"


def test_a_book_is_cut_into_few_long_stretches_that_hold_every_window_once() -> None:
    units = stretch_units(book(2000))
    assert (units.drawn, units.is_disjoint) == (MOST_STRETCHES, True)
    assert sorted(np.concatenate(members(units)).tolist()) == list(range(2000))
    assert units.sizes.max() - units.sizes.min() <= 20
    assert not block_units(book(2000)).is_disjoint
    assert stretch_units(book(20)).drawn == 1, "two stretches of four windows each do not fit"


@pytest.mark.parametrize(
    ("documents", "windows_each", "expected"),
    [
        (1, 500, RateMethod.BY_BLOCK),
        (3, 500, RateMethod.BY_BLOCK),
        (10, 500, RateMethod.BY_DOCUMENT),
        (5, 1, RateMethod.BY_DOCUMENT),
    ],
)
def test_differences_are_of_many_documents_or_of_long_stretches(
    documents: int, windows_each: int, expected: RateMethod
) -> None:
    names = np.repeat(np.arange(documents), windows_each)
    starts = np.tile(np.arange(windows_each) * 20, documents)
    assert long_units(Places.of(names, starts, window_chars=400)).method is expected


@pytest.mark.parametrize("method", [RateMethod.BY_DOCUMENT, RateMethod.BY_BLOCK])
def test_closed_form_is_what_a_naive_bootstrap_loop_tends_to(method: RateMethod) -> None:
    """Standard error of 3,000 resamples is known to 1.3 %; 8 % away is six of those: a false alarm below 1e-8."""
    generator = np.random.default_rng(11)
    smooth = np.convolve(generator.normal(size=1019), np.ones(20), mode="valid")
    places = Places.of(np.repeat(np.arange(50), 20), np.arange(1000) * 20, window_chars=400)
    units = document_units(places) if method is RateMethod.BY_DOCUMENT else block_units(places)
    lists = members(units)
    naive = []
    for _ in range(3000):
        pooled = [smooth[lists[choice]] for choice in generator.integers(0, len(lists), size=units.drawn)]
        naive.append(np.concatenate(pooled).mean())
    # The closed form carries the factor drawn/(drawn − 1) that makes the plain bootstrap variance unbiased.
    unbiased = np.std(naive) * math.sqrt(units.drawn / (units.drawn - 1))
    closed_form = units.variance_of_mean(smooth) * (1.0 - units.missed)
    assert unbiased == pytest.approx(math.sqrt(closed_form), rel=0.08)


def test_single_window_units_have_no_possible_inflation() -> None:
    units = document_units(Places.of(list("abcd"), np.zeros(4, dtype=np.int64), window_chars=9))
    assert units.largest_design_effect() == 1.0


def test_windows_sampled_far_apart_count_one_by_one() -> None:
    """Blocks around sparse windows hold one window each (but where the last meets the first), so as many blocks are
    drawn as there are windows."""
    units = block_units(Places.of(["book"] * 30, np.arange(30) * 100_000, window_chars=400))
    assert np.mean(units.sizes == 1) > 0.95
    assert units.drawn == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    ("documents", "windows_each", "expected"),
    [
        (1, 500, RateMethod.BY_BLOCK),
        (3, 500, RateMethod.BY_BLOCK),
        (10, 500, RateMethod.BY_DOCUMENT),
        (5, 1, RateMethod.BY_DOCUMENT),
    ],
)
def test_books_are_cut_into_blocks_and_many_documents_are_units(
    documents: int, windows_each: int, expected: RateMethod
) -> None:
    names = np.repeat(np.arange(documents), windows_each)
    starts = np.tile(np.arange(windows_each) * 20, documents)
    assert choose_units(Places.of(names, starts, window_chars=100)).method is expected


def test_default_blocks_are_four_windows_but_leave_ten_of_them() -> None:
    assert block_units(book(5000)).block_chars == 400
    assert block_units(book(120)).block_chars == 248
    assert block_units(book(20)).block_chars == 100


@pytest.mark.parametrize("passage", [1, 4, 10])
def test_reach_of_correlation_is_found_and_lengthens_the_blocks(passage: int) -> None:
    """Sums over `passage` cells: correlation 1 − k/passage at lag k, none from k = passage on.

    2,000 other series each gave a reach of 1 without fail for 1 cell, 4 to 12 for 4 and 8 to 50 for 10, with medians
    4 and 10; reaches beyond twice the passage came up in at most 2 % of them, which is the false alarm of a new seed.
    """
    generator = np.random.default_rng(41)
    cells = np.arange(3000)
    values = np.convolve(generator.normal(size=3000 + passage - 1), np.ones(passage), mode="valid")
    reach = correlated_windows(values, cells)
    # The last lags inside a passage have correlations too weak to see.
    assert max(1, passage - 2) <= reach <= 2 * passage
    places = Places.of(["book"] * 3000, cells * 100, window_chars=100)
    assert block_units(places, values).block_chars == 400 * reach


def test_constant_values_and_short_texts_reach_one_window() -> None:
    assert correlated_windows(np.ones(100), np.arange(100)) == 1
    assert correlated_windows(np.array([1.0, 0.0, 1.0]), np.arange(3)) == 1


def test_cells_without_windows_do_not_disturb_the_reach() -> None:
    generator = np.random.default_rng(43)
    values = generator.normal(size=500)
    assert correlated_windows(values, np.arange(500) * 7) == 1
