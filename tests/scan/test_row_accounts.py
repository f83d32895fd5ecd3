"""What a row says of itself: its masses add up to 1, and it cost no more than `byrote plan` says."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.stats.planning import scan_evals
from byrote.types import Split, Window
from tests.table import TableModel

PREFIX, SUFFIX = 2, 4
SEARCHED: dict[str, Any] = {
    "prefix_tokens": PREFIX, "suffix_tokens": SUFFIX, "top_k": 3, "edit_budget": 2, "screen": "off", "answers": 0,
}  # fmt: skip


def row_of(seed: int, ids: list[int], **options: Any) -> dict[str, Any]:
    model = TableModel.random(seed, vocab_size=4, eos_ids=frozenset({3}))
    window = Window("w", "text", Split.TARGET, 0, 0, 0, tuple(ids[:PREFIX]), tuple(ids[PREFIX:]))
    (measured,) = Pipeline(model, RunConfig(**SEARCHED, **options), decode=str).run([window])
    return measured.row


token_ids = st.lists(st.integers(0, 3), min_size=PREFIX + SUFFIX, max_size=PREFIX + SUFFIX)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 5000),
    ids=token_ids,
    distance=st.sampled_from(["none", "levenshtein", "hamming"]),
    stop_rule=st.sampled_from(["mass", "published", "off"]),
    max_children=st.sampled_from([1, 2, 1024]),
)
def test_found_open_ended_and_refuted_mass_add_up_to_1(seed: int, ids: list[int], **options: Any) -> None:
    """Of the baseline too, which accepts continuations beyond the budget."""
    row = row_of(seed, ids, beam_width=2, threshold=0.1, **options)
    account = (row["search_lower"][-1], row["open_mass"], row["eos_mass"], row["refuted_mass"])
    assert sum(account) == pytest.approx(1, rel=1e-9)
    assert min(account) >= 0


@settings(max_examples=40)
@given(seed=st.integers(0, 5000), ids=token_ids, beam_width=st.integers(1, 5), pin=st.booleans())
def test_no_row_costs_more_than_the_plan_says(seed: int, ids: list[int], beam_width: int, pin: bool) -> None:
    def cost(measures: str) -> int:
        searched = {"beam_width": beam_width, "pin": pin, "greedy": "full", "stop_rule": "off", "negligible": 0.0}
        return int(row_of(seed, ids, measures=tuple(measures.split()), **searched)["token_evals"])

    most = {"verbatim": 0, "greedy": 1, "near": beam_width, "greedy verbatim near": beam_width + 1}
    for measures, beams in most.items():
        assert cost(measures) <= scan_evals(PREFIX, SUFFIX, beams=beams), measures
    assert cost("verbatim") == scan_evals(PREFIX, SUFFIX, beams=0)
