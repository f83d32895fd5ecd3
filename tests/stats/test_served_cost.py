"""Predicted prompts, requests and tokens of a served window, against counting them one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.stats.planning import BLOCKS, first_forward, full_search, requests_of

sizes = st.integers(1, 60)


@given(sizes, sizes, st.integers(1, 70), st.sampled_from(sorted(BLOCKS)))
def test_a_full_search_is_counted_prompt_by_prompt(prefix: int, suffix: int, beams: int, dialect: str) -> None:
    cost = full_search(prefix, suffix, beam_width=beams, dialect=dialect, per_request=32)
    prompts = [prefix + step for step in range(1, suffix) for _ in range(beams)]
    assert cost.prompts == len(prompts)
    assert cost.tokens == sum(prompts) + len(prompts)
    block = BLOCKS[dialect]
    kept = [next(end for end in range(length - 1, -1, -1) if end % block == 0) for length in prompts]
    assert cost.computed == sum(length - cached + 1 for length, cached in zip(prompts, kept, strict=True))
    assert cost.computed <= cost.tokens


@given(sizes, sizes)
def test_a_server_without_places_is_asked_once_a_place(prefix: int, suffix: int) -> None:
    cost = first_forward(prefix, suffix, dialect="llamacpp", per_request=32, chains_per_request=8)
    assert cost.prompts == suffix
    assert cost.tokens == sum(prefix + place + 1 for place in range(suffix))
    one = first_forward(prefix, suffix, dialect="vllm", per_request=32, chains_per_request=8)
    assert (one.prompts, one.requests, one.tokens) == (1, 1 / 8, prefix + suffix)


@pytest.mark.parametrize(
    ("siblings", "expected"), [(1, 1 / 32), (16, 1 / 2), (17, 1), (20, 1), (32, 1), (33, 1 + 1 / 32), (64, 2), (0, 0)]
)
def test_whole_families_share_a_request_where_they_fit(siblings: int, expected: float) -> None:
    assert math.isclose(requests_of(siblings, 32), expected)
