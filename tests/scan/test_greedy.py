"""Greedy answers against a textbook decoder: one token at a time, whole histories, until the model ends."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.distance.tokens import levenshtein
from byrote.models.base import CausalModel
from byrote.scan.options import RunConfig
from byrote.scan.stages.decode import DecodeStage, GreedyResult
from byrote.scan.stages.score import ScoreStage
from byrote.types import Window
from tests.models.test_hf_architectures import wrap
from tests.models.tiny import VOCABULARY, tiny_model
from tests.scan.streams import make_window
from tests.table import TableModel


def answer_of(model: CausalModel, prefix_ids: Sequence[int], most: int) -> tuple[int, ...]:
    """What a user's greedy decoder gives: the most likely token, lower id first among equals, until EOS or `most`."""
    answer: list[int] = []
    while len(answer) < most:
        logits = model.next_logits([[*prefix_ids, *answer]])[0]
        answer.append(int((logits == logits.max()).nonzero()[0]))
        if answer[-1] in model.eos_ids:
            break
    return tuple(answer)


def log_p_of(model: CausalModel, prefix_ids: Sequence[int], answer: Sequence[int]) -> float:
    """Of an answer of most likely tokens when the two most likely ones are kept."""
    pairs = [model.next_logits([[*prefix_ids, *answer[:place]]])[0].double().topk(2) for place in range(len(answer))]
    return sum(float(pair.values[0] - pair.values.logsumexp(-1)) for pair in pairs)


def missing_places(answer: Sequence[int], target: Sequence[int]) -> int:
    """Hamming distance in which places that the answer does not have are mismatches."""
    return len(target) - sum(one == other for one, other in zip(answer, target, strict=False))


def decoded(model: TableModel, windows: list[Window], **options: object) -> list[GreedyResult]:
    prefix, suffix = (max(len(getattr(w, name)) for w in windows) for name in ("prefix_ids", "suffix_ids"))
    config = RunConfig(prefix_tokens=prefix, suffix_tokens=suffix, top_k=2, measures=("greedy",), **options)
    score = ScoreStage(model, config)
    scored = score.score(windows)
    decoding = DecodeStage(model, config, score.spare_slots)
    decoding.decode(scored)
    decoding.finish()
    return [item.greedy for item in scored if item.greedy is not None]


@st.composite
def cases(draw: st.DrawFn) -> tuple[TableModel, list[Window]]:
    """Windows whose targets follow the greedy path for a while, so that answers of every distance come up."""
    eos_ids = draw(st.sampled_from([frozenset[int](), frozenset({0}), frozenset({1, 2})]))
    model = TableModel.random(draw(st.integers(0, 10_000)), vocab_size=5, spread=1.0, eos_ids=eos_ids)
    windows = []
    for number in range(draw(st.integers(1, 6))):
        prefix = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
        length = draw(st.integers(1, 8))
        target = list(answer_of(model, prefix, length)) + draw(st.lists(st.integers(0, 4), min_size=8, max_size=8))
        for place in draw(st.sets(st.integers(0, length - 1), max_size=2)):
            target[place] = draw(st.integers(0, 4))
        windows.append(make_window(number, [*prefix, *target[:length]], prefix=len(prefix)))
    return model, windows


@settings(max_examples=150, deadline=None)
@given(case=cases(), budget=st.integers(0, 1))
def test_answers_and_distances_are_those_of_a_textbook_decoder(
    case: tuple[TableModel, list[Window]], budget: int
) -> None:
    model, windows = case
    for whole in (True, False):
        results = decoded(model, windows, edit_budget=budget, greedy="full" if whole else "decided")
        for window, result in zip(windows, results, strict=True):
            answer = answer_of(model, window.prefix_ids, len(window.suffix_ids))
            distance = levenshtein(answer, window.suffix_ids)
            if result.levenshtein is None:
                assert not whole, "a whole answer has its distances"
                assert result.hamming is None
                assert distance > budget
                assert answer[: len(result.token_ids)] == result.token_ids
            else:
                assert result.token_ids == answer
                assert result.levenshtein == distance
            if whole:
                assert result.log_p == pytest.approx(log_p_of(model, window.prefix_ids, answer), abs=1e-9)
                assert result.hamming == missing_places(answer, window.suffix_ids)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_decoding_ends_as_soon_as_no_completion_can_be_within_the_budget(case: tuple[TableModel, list[Window]]) -> None:
    """By trying every completion of what was decoded before the last token: one of them was still near enough."""
    model, windows = case
    for window, result in zip(windows, decoded(model, windows, edit_budget=1), strict=True):
        if result.is_beyond_budget:
            target = window.suffix_ids
            before = result.token_ids[:-1]
            tails = [target[start:] for start in range(len(target) + 1)]
            within = [(*before, *tail) for tail in tails if len(before) + len(tail) <= len(target)]
            assert min(levenshtein(answer, target) for answer in within) <= 1


def test_an_answer_that_ends_early_is_compared_as_it_is() -> None:
    """EOS first at every step and the target second: a decoder answers nothing but the end."""
    table = torch.tensor([[3.0, 2.0, 0.0, 0.0]])
    model = TableModel(table, eos_ids=frozenset({0}))
    window = make_window(0, [2, 1, 1, 1, 1, 1], prefix=1)
    (result,) = decoded(model, [window], edit_budget=5)
    assert (result.token_ids, result.levenshtein, result.hamming) == ((0,), 5, 5)
    (beyond,) = decoded(model, [window], edit_budget=2)
    assert (beyond.levenshtein, beyond.is_beyond_budget) == (5, False), "an answer that ended has its distances"


def test_a_target_that_ends_the_text_is_answered_whole() -> None:
    model = TableModel(torch.tensor([[3.0, 2.0, 0.0]]), eos_ids=frozenset({0}))
    (result,) = decoded(model, [make_window(0, [2, 1, 0], prefix=2)])
    assert (result.token_ids, result.levenshtein) == ((0,), 0)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2"])
def test_answers_of_real_models_are_those_of_their_plain_forward(architecture: str) -> None:
    model = wrap(tiny_model(architecture))
    drawn = torch.randint(0, VOCABULARY, (5, 14), generator=torch.Generator().manual_seed(2)).tolist()
    windows = []
    for number, row in enumerate(drawn):
        target = [*answer_of(model, row[:6], 3), *row[9:14]]
        windows.append(make_window(number, [*row[:6], *target], prefix=6))
    for window, result in zip(windows, decoded(model, windows, greedy="full"), strict=True):
        assert result.token_ids == answer_of(model, window.prefix_ids, len(window.suffix_ids))
