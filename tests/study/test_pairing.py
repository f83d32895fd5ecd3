"""Windows paired by span, against the obvious version that looks at every two windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.study.compare import Pairing, Spans, pair_by_span

SPAN = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 60), st.integers(1, 25))
SPANS = st.lists(SPAN, max_size=14, unique=True)


def spans_of(rows: list[tuple[str, int, int]]) -> Spans:
    documents = np.array([row[0] for row in rows], dtype=object)
    starts = np.array([row[1] for row in rows], dtype=np.int64)
    return Spans(documents, starts, starts + np.array([row[2] for row in rows], dtype=np.int64))


def overlap_of(one: tuple[str, int, int], other: tuple[str, int, int]) -> float:
    if one[0] != other[0]:
        return 0.0
    first, second = (set(range(start, start + length)) for _, start, length in (one, other))
    return len(first & second) / len(first | second)


def pairs_by_brute_force(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], least: float
) -> list[tuple[int, int]]:
    """Best overlap first, earlier windows on ties, none twice."""
    edges = [(-overlap_of(one, other), i, j) for i, one in enumerate(first) for j, other in enumerate(second)]
    chosen: list[tuple[int, int]] = []
    for negative, i, j in sorted(edges):
        if -negative >= least and all(i != row and j != column for row, column in chosen):
            chosen.append((i, j))
    return sorted(chosen)


@given(SPANS, SPANS, st.sampled_from([0.05, 0.5, 1.0]))
def test_pairs_are_those_of_the_obvious_version(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], least: float
) -> None:
    found = pair_by_span(spans_of(first), spans_of(second), least_overlap=least)
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == pairs_by_brute_force(
        first, second, least
    )
    assert found.overlap.tolist() == pytest.approx(
        [overlap_of(first[i], second[j]) for i, j in zip(found.first, found.second, strict=True)]
    )
    assert found.unpaired_first + len(found.first) == len(first)
    assert found.unpaired_second + len(found.second) == len(second)


@given(SPANS)
def test_a_run_is_paired_with_itself_completely(rows: list[tuple[str, int, int]]) -> None:
    found = pair_by_span(spans_of(rows), spans_of(rows), least_overlap=1.0)
    assert found.first.tolist() == found.second.tolist() == list(range(len(rows)))


def test_the_share_without_a_partner_counts_both_runs() -> None:
    empty = np.empty(0, dtype=np.int64)
    pair = np.array([0])
    assert Pairing(pair, pair, np.array([1.0]), 3, 5).unpaired_share == pytest.approx(8 / 10)
    assert np.isnan(Pairing(empty, empty, np.empty(0), 0, 0).unpaired_share)
