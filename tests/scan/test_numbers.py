"""Logits that are not numbers: either nobody looks at them, or the scan is an error that names the window."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.errors import ModelError
from byrote.policy import Policy
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.verify import verify
from byrote.types import Continuation
from tests.scan.streams import CONFIG, PREFIX, SUFFIX, VOCABULARY, passed, random_windows
from tests.table import TableModel

WINDOWS = random_windows(4, seed=5)
EVERYTHING = replace(
    CONFIG, measures=("greedy", "verbatim", "near"), greedy="full", refine=40, residual=40, closure=2, stop_rule="off"
)
BROKEN = {
    "NaN": [0.0, math.nan, 1.0, 2.0, 0.5, -1.0],
    "a NaN with a sign": [0.0, -math.nan, 1.0, 2.0, 0.5, -1.0],
    "infinity": [0.0, 1.0, math.inf, 2.0, 0.5, -1.0],
    "nothing possible": [-math.inf] * VOCABULARY,
}


def table(explicit: dict[tuple[int, ...], list[float]]) -> TableModel:
    generator = torch.Generator().manual_seed(3)
    return TableModel(torch.randn(512, VOCABULARY, generator=generator) * 3, explicit=explicit)


def findings(model: TableModel, config: RunConfig) -> list[tuple[object, ...]]:
    def of(item: Measured) -> tuple[object, ...]:
        return (item.window.window_id, item.score, item.greedy, item.near and item.near.bounds, item.estimate)

    return sorted((of(item) for item in passed(model, WINDOWS, config)), key=lambda found: str(found[0]))


@settings(max_examples=120)
@given(
    kind=st.sampled_from(sorted(BROKEN)),
    place=st.integers(0, len(WINDOWS) - 1),
    path=st.lists(st.integers(0, VOCABULARY - 1), max_size=SUFFIX - 1),
    follows_target=st.integers(0, SUFFIX - 1),
    policy=st.sampled_from([{"top_k": 4}, {"top_k": None}, {"top_k": None, "top_p": 0.7}, {"max_children": 2}]),
)
def test_a_broken_row_is_an_error_or_nobody_looks_at_it(
    kind: str, place: int, path: list[int], follows_target: int, policy: dict[str, object]
) -> None:
    window = WINDOWS[place]
    history = (window.ids[: PREFIX + follows_target] + tuple(path))[: PREFIX + SUFFIX - 1]
    config = replace(EVERYTHING, **policy)  # type: ignore[arg-type]
    found, fault = None, ""
    try:
        found = findings(table({history: BROKEN[kind]}), config)
    except ModelError as error:
        fault = str(error)
    if found is None:
        assert f"window {window.window_id}" in fault
        assert "not numbers (NaN or infinity) in float32" in fault
    else:
        assert repr(found) == repr(findings(table({}), config)), "the row was looked at"
        assert history != window.ids[: len(history)], "every place of the target is looked at"


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("tokens", range(PREFIX, PREFIX + SUFFIX))
def test_a_broken_row_on_the_target_is_an_error_for_every_measure(kind: str, tokens: int) -> None:
    model = table({WINDOWS[1].ids[:tokens]: BROKEN[kind]})
    for measures in (("verbatim",), ("greedy",), ("verbatim", "near")):
        with pytest.raises(ModelError, match=f"logits for window {WINDOWS[1].window_id} are not numbers"):
            findings(model, replace(CONFIG, measures=measures))  # type: ignore[arg-type]


def test_a_forbidden_token_is_legal() -> None:
    window = WINDOWS[0]
    row = [0.0] * VOCABULARY
    row[window.suffix_ids[0]] = -math.inf
    (found,) = [item for item in passed(table({window.prefix_ids: row}), WINDOWS[:1], CONFIG)]
    assert found.score.log_p == (-math.inf,)


def test_verification_refuses_what_is_not_a_number() -> None:
    window = WINDOWS[2]
    other = (*window.suffix_ids[:-1], (window.suffix_ids[-1] + 1) % VOCABULARY)
    model = table({window.ids[:-1]: BROKEN["NaN"]})
    with pytest.raises(ModelError, match=f"continuations of window {window.window_id}"):
        verify(model, window, [Continuation(other, -1.0, 1)], policy=Policy(1.0, 4), lower=0.5)
