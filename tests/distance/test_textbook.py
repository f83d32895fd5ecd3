"""Distances between finished sequences, and what METHOD says about the balls they make."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byrote.distance.tokens import hamming, levenshtein, levenshtein_many
from tests.oracle import textbook_hamming, textbook_levenshtein

tokens = st.lists(st.integers(0, 3), max_size=8)


@given(tokens, tokens)
def test_levenshtein_equals_the_full_table(left: list[int], right: list[int]) -> None:
    assert levenshtein(left, right) == textbook_levenshtein(left, right)


@given(st.integers(0, 7).flatmap(lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n))), tokens)
def test_levenshtein_of_many_rows_equals_one_by_one(rows: list[list[int]], target: list[int]) -> None:
    width = len(rows[0]) if rows else 0
    sequences = torch.tensor(rows, dtype=torch.int64).reshape(len(rows), width)
    many = levenshtein_many(sequences, torch.tensor(target, dtype=torch.int64))
    assert many.tolist() == [textbook_levenshtein(row, target) for row in rows]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_hamming_counts_positions_that_differ(pairs: list[tuple[int, int]]) -> None:
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    assert hamming(left, right) == textbook_hamming(left, right)
    assert levenshtein(left, right) <= hamming(left, right)


def test_hamming_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        hamming([1], [1, 2])


def ball(target: tuple[int, ...], radius: int, *, distance: str, vocabulary: int = 3) -> set[tuple[int, ...]]:
    measure = hamming if distance == "hamming" else levenshtein
    every = itertools.product(range(vocabulary), repeat=len(target))
    return {path for path in every if measure(path, target) <= radius}


@pytest.mark.parametrize("target", [(0, 1, 2), (0, 0, 1, 2), (2, 2, 2), (0, 1, 2, 0, 1)])
def test_balls_are_equal_up_to_one_edit_and_nested_beyond(target: tuple[int, ...]) -> None:
    for radius in (0, 1):
        assert ball(target, radius, distance="hamming") == ball(target, radius, distance="levenshtein")
    assert ball(target, 2, distance="hamming") <= ball(target, 2, distance="levenshtein")


def test_a_shift_lies_in_the_levenshtein_ball_of_two_edits_only() -> None:
    target = (0, 1, 2, 0)
    assert ball(target, 2, distance="hamming") < ball(target, 2, distance="levenshtein")


def test_hamming_ball_size_is_the_sum_of_choices() -> None:
    """Σ_r C(4, r)·2^r for r ≤ 2: 1 + 8 + 24."""
    assert len(ball((0, 1, 2, 0), 2, distance="hamming")) == 33
