"""Bounds for balls that no viability rule knows, against enumeration of every continuation."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.errors import ConfigError
from rote.models.table import TableModel
from rote.policy import Policy
from rote.scan.posthoc import bleu_at_least, posthoc_bounds, within_hamming, within_levenshtein
from rote.search.base import Limits, SearchTask
from rote.search.engine import Engine
from rote.types import Continuation
from tests.oracle import every_continuation
from tests.search.test_engine_equals_reference import PLAIN

WORDS = ("alpha", "beta", "gamma", "delta")
BASELINE = replace(PLAIN, distance="none", policy=Policy(1.0, 3), beam_width=4, keep=None, record_frontier=False)
TASK = SearchTask(0, (1, 2), (0, 1, 2, 3, 1))


def decode(ids: tuple[int, ...]) -> str:
    return " ".join(WORDS[token] for token in ids)


def judges() -> list:  # type: ignore[type-arg]
    target = TASK.suffix_ids
    return [within_levenshtein(target, 2), within_hamming(target, 2), bleu_at_least(decode(target), decode, 0.5)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 2.0, 6.0]), st.sampled_from([frozenset[int](), frozenset({3})]))
def test_the_truth_lies_between_the_bounds_for_every_judge(seed: int, spread: float, eos: frozenset[int]) -> None:
    model = TableModel.random(seed, vocab_size=4, spread=spread, eos_ids=eos)
    (outcome,) = Engine(model, BASELINE, slots=1, limits=Limits(6, 6)).run([TASK])
    everything = list(every_continuation(model, TASK.prefix_ids, len(TASK.suffix_ids), BASELINE.policy))
    for counts in judges():
        truth = math.fsum(p.probability for p in everything if counts(Continuation(p.token_ids, 0.0, 0)))
        bounds = posthoc_bounds(outcome, counts)
        assert bounds.lower[0] <= truth + 1e-12
        assert truth <= bounds.upper[-1] + 1e-12


def test_a_beam_that_holds_everything_gives_the_truth() -> None:
    model = TableModel.random(5, vocab_size=4)
    options = replace(BASELINE, beam_width=1000, policy=Policy(1.0, None))
    (outcome,) = Engine(model, options, slots=1, limits=Limits(6, 6)).run([TASK])
    everything = every_continuation(model, TASK.prefix_ids, len(TASK.suffix_ids), options.policy)
    counts = judges()[2]
    truth = math.fsum(p.probability for p in everything if counts(Continuation(p.token_ids, 0.0, 0)))
    bounds = posthoc_bounds(outcome, counts)
    assert bounds.lower[0] == pytest.approx(truth)
    assert bounds.upper == pytest.approx((truth,))


def test_continuations_that_were_not_kept_are_missed_aloud() -> None:
    model = TableModel.random(5, vocab_size=4)
    (outcome,) = Engine(model, replace(BASELINE, keep=1), slots=1, limits=Limits(6, 6)).run([TASK])
    with pytest.raises(ConfigError, match="keep=None"):
        posthoc_bounds(outcome, judges()[0])


def test_identical_text_has_full_bleu_and_another_text_has_not() -> None:
    counts = bleu_at_least(decode(TASK.suffix_ids), decode, 0.99)
    assert counts(Continuation(TASK.suffix_ids, 0.0, 0))
    assert not counts(Continuation((3, 3, 3, 0, 0), 0.0, 5))
