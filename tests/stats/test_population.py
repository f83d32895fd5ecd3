"""Shares, heat and categories by hand and by brute force."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import RunError
from byrote.stats.population import (
    Category,
    categories,
    character_maxima,
    covered_share,
    extractable_by_all,
    mass_gain,
    population_of,
    shell_shares,
    stretch_maxima,
    tail_curve,
)

MASSES = st.floats(0, 1, allow_subnormal=False)


def results(**columns: list[object]) -> pl.DataFrame:
    count = len(next(iter(columns.values())))
    base: dict[str, list[object]] = {
        "window_id": [f"w{index}" for index in range(count)],
        "document": ["book"] * count,
        "split": ["target"] * count,
        "char_start": [10 * index for index in range(count)],
        "suffix_char_start": [10 * index + 5 for index in range(count)],
        "char_end": [10 * index + 12 for index in range(count)],
        "prefix_ids": [[index] for index in range(count)],
        "suffix_ids": [[index, 1] for index in range(count)],
    }
    return pl.DataFrame(base | columns)


def test_categories_of_the_three_kinds_and_of_none() -> None:
    p_verbatim = np.array([0.5, 0.001, 0.0005, 0.0, 0.0005, 0.0])
    mass = np.array([0.6, 0.001, 0.002, 0.3, 0.0009, 0.0])
    assert categories(p_verbatim, mass, 0.001, is_impossible=p_verbatim == 0).tolist() == [
        Category.VERBATIM,
        Category.VERBATIM,
        Category.UNLOCKED,
        Category.UNLOCKED_FROM_ZERO,
        Category.NOT_EXTRACTABLE,
        Category.NOT_EXTRACTABLE,
    ]


@given(st.lists(st.tuples(MASSES, MASSES), min_size=1, max_size=30), st.sampled_from([1e-6, 0.001, 0.5, 1.0]))
def test_extractable_windows_are_exactly_those_in_some_category(pairs: list[tuple[float, float]], tau: float) -> None:
    p_verbatim = np.array([min(pair) for pair in pairs])
    mass = np.array([max(pair) for pair in pairs])
    found = categories(p_verbatim, mass, tau, is_impossible=p_verbatim == 0) != Category.NOT_EXTRACTABLE
    assert found.tolist() == [value >= tau for value in mass]


def test_a_probability_too_small_for_a_float_is_not_impossible() -> None:
    """log p = −800: p is 0 as a float. −inf: the policy cuts a token off."""
    population = population_of(
        results(
            p_verbatim=[0.0, 0.0, 0.25],
            log_p_verbatim=[-800.0, -math.inf, math.log(0.25)],
            mass_lower=[[0.0, 0.3], [0.0, 0.3], [0.25, 0.5]],
            mass_upper=[[0.0, 0.3], [0.0, 0.3], [0.25, 0.5]],
        )
    )
    assert population.is_impossible().tolist() == [False, True, False]
    assert population.log_verbatim().tolist() == [-800.0, -math.inf, math.log(0.25)]
    assert population.log_mass(0).tolist() == [-800.0, -math.inf, math.log(0.25)]
    assert population.log_mass(1).tolist() == [math.log(0.3), math.log(0.3), math.log(0.5)]
    found = categories(population.verbatim(), population.mass(1), 0.1, is_impossible=population.is_impossible())
    assert found.tolist() == [Category.UNLOCKED, Category.UNLOCKED_FROM_ZERO, Category.VERBATIM]


def test_without_a_stored_logarithm_the_mass_itself_tells() -> None:
    population = population_of(results(mass_lower=[[0.0, 0.3], [0.25, 0.5]]))
    assert population.is_impossible().tolist() == [True, False]
    assert population.log_verbatim().tolist() == [-math.inf, math.log(0.25)]


def test_windows_that_were_not_searched_out_are_those_that_rest_on_the_verbatim_probability() -> None:
    stops = ["screened", "below_threshold", "below_threshold", "beam_empty", "finished"]
    lower = [[0.1, 0.1], [0.1, 0.1], [0.1, 0.2], [0.1, 0.1], [0.1, 0.1]]
    population = population_of(results(p_verbatim=[0.1] * 5, mass_lower=lower, stop_reason=stops))
    assert population.is_cut_short is not None
    assert population.is_cut_short.tolist() == [True, True, False, False, False], "the third was refined after all"
    assert population_of(results(p_verbatim=[0.1])).is_cut_short is None


def test_what_the_search_found_of_the_target_is_nan_where_it_did_not_search() -> None:
    population = population_of(results(p_verbatim=[0.1, 0.2], search_lower=[None, [0.2, 0.3]]))
    assert population.search_verbatim is not None
    assert np.array_equal(population.search_verbatim, [math.nan, 0.2], equal_nan=True)


def test_mass_gain_is_never_negative_even_where_the_search_lost_the_verbatim_path() -> None:
    assert mass_gain(np.array([0.2, 0.3]), np.array([0.5, 0.1])).tolist() == pytest.approx([0.3, 0.0])


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.25, 1.0]), min_size=1, max_size=40))
def test_tail_curve_equals_counting(values: list[float]) -> None:
    distinct, shares = tail_curve(np.array(values))
    assert distinct.tolist() == sorted(set(values))
    for value, share in zip(distinct, shares, strict=True):
        assert share == sum(other >= value for other in values) / len(values)


def test_shell_shares_by_hand() -> None:
    shares = shell_shares(np.array([[0.2, 0.3, 0.4], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    assert shares[0].tolist() == pytest.approx([0.5, 0.25, 0.25])
    assert shares[1].tolist() == [0.0, 0.0, 1.0]
    assert np.isnan(shares[2]).all()


@given(st.lists(st.lists(MASSES, min_size=6, max_size=6), min_size=1, max_size=20))
def test_shell_shares_add_up_to_one(shells: list[list[float]]) -> None:
    mass_lower = np.cumsum(np.array(shells) / 6, axis=1)
    shares = shell_shares(mass_lower)
    for row, total in zip(shares, mass_lower[:, -1], strict=True):
        assert np.isnan(row).all() if total == 0 else row.sum() == pytest.approx(1.0)


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.sampled_from([0.0, 0.1, 0.4, 0.9])), max_size=12)


@given(SPANS)
def test_character_maxima_equal_the_maximum_over_covering_spans(spans: list[tuple[int, int, float]]) -> None:
    length = 50
    starts = np.array([start for start, _, _ in spans], dtype=np.int64)
    ends = np.array([start + size for start, size, _ in spans], dtype=np.int64)
    heat = character_maxima(starts, ends, np.array([value for *_, value in spans]), length=length)
    for position in range(length):
        covering = [value for start, size, value in spans if start <= position < start + size]
        assert math.isnan(heat[position]) if not covering else heat[position] == max(covering)


def test_covered_share_counts_characters_at_or_above_the_threshold() -> None:
    assert covered_share(np.array([np.nan, 0.1, 0.001, 0.5]), 0.1) == 0.5
    assert math.isnan(covered_share(np.array([]), 0.1))


def test_fixed_set_and_unlocked_windows_across_models() -> None:
    small = population_of(
        results(p_verbatim=[0.5, 0.0, 0.01, 0.0], mass_lower=[[0.5, 0.6], [0.0, 0.2], [0.01, 0.3], [0.0, 0.0]])
    )
    large = population_of(
        results(p_verbatim=[0.9, 0.4, 0.02, 0.7], mass_lower=[[0.9, 0.9], [0.4, 0.5], [0.02, 0.4], [0.7, 0.8]])
    )
    assert extractable_by_all([small.mass(1), large.mass(1)], 0.1).tolist() == [True, True, True, False]
    assert small.is_unlocked(1, 0.1).tolist() == [False, True, True, False]
    assert large.is_unlocked(1, 0.1).tolist() == [False, False, True, False]


def test_stretch_maxima_by_hand() -> None:
    heat = np.array([np.nan, np.nan, 0.1, 0.4, np.nan, 0.2])
    assert np.array_equal(stretch_maxima(heat, 3), [np.nan, 0.4, 0.2], equal_nan=True)
    assert len(stretch_maxima(heat, 100)) == 6


def test_population_reads_every_measure_and_leaves_absent_ones_absent() -> None:
    full = population_of(
        results(
            p_verbatim=[0.2, 0.0],
            mass_lower=[[0.2, 0.3], [0.0, 0.0]],
            mass_upper=[[0.2, 0.4], [0.0, 0.1]],
            greedy_levenshtein=[0, 3],
            greedy_hamming=[0, None],
        ),
        "hamming",
    )
    assert full.edit_budget == 1
    assert full.greedy_distance is not None
    assert full.greedy_distance.tolist() == [0, np.inf], "an answer beyond the budget is never counted as near"
    assert full.mass(0).tolist() == [0.2, 0.0]
    assert full.mass(1).tolist() == [0.3, 0.0]
    assert full.mass_upper is not None
    assert full.mass_upper.tolist() == [[0.2, 0.4], [0.0, 0.1]]
    bare = population_of(results(p_verbatim=[0.2]))
    assert bare.mass_lower is None
    assert bare.mass_upper is None
    assert bare.greedy_distance is None
    assert bare.mass(0).tolist() == [0.2]


def test_selecting_keeps_absent_measures_absent_and_rows_together() -> None:
    population = population_of(results(p_verbatim=[0.2, 0.3, 0.4]))
    chosen = population.select(np.array([True, False, True]))
    assert chosen.verbatim().tolist() == [0.2, 0.4]
    assert chosen.char_start.tolist() == [0, 20]
    assert chosen.mass_lower is None


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=2)


@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=12))
def test_windows_of_the_same_tokens_have_the_place_of_the_first(windows: list[tuple[list[int], list[int]]]) -> None:
    rows = {
        "prefix_ids": [prefix for prefix, _ in windows],
        "suffix_ids": [suffix for _, suffix in windows],
        "document": [f"d{index}" for index in range(len(windows))],
    }
    population = population_of(results(**rows))
    first = [windows.index(window) for window in windows]
    assert population.place_document.tolist() == [f"d{index}" for index in first]
    assert population.place_start.tolist() == [10 * index for index in first]


def test_shared_controls_are_rated_only_when_asked_for() -> None:
    rows = results(p_verbatim=[0.2, 0.3, 0.4], split=["target", "control", "control"], shared_with=[None, "book", None])
    assert population_of(rows).is_rated.tolist() == [True, False, True]
    assert population_of(rows, counts_shared=True).is_rated.all()
    assert population_of(results(p_verbatim=[0.2])).is_rated.all()


def test_masses_that_were_not_measured_are_refused_by_name() -> None:
    with pytest.raises(RunError, match="0 to 0 edits, not 5"):
        population_of(results(p_verbatim=[0.2])).mass(5)
    with pytest.raises(RunError, match="neither verbatim nor near-verbatim"):
        population_of(results(greedy_levenshtein=[1])).mass(0)
    with pytest.raises(RunError, match="mix edit budgets"):
        population_of(results(mass_lower=[[0.1], [0.1, 0.2]]))
