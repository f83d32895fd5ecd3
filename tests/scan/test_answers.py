"""Sampled answers against a textbook sampler: one token at a time, whole histories, the same points."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byrote.distance.tokens import hamming, levenshtein
from byrote.models.base import CausalModel
from byrote.policy import keep
from byrote.scan.measures.base import Measured
from byrote.scan.options import RunConfig
from byrote.scan.stages.decode import DecodeStage, SampledAnswers, answer_points
from byrote.scan.stages.score import ScoreStage
from byrote.types import Window
from tests.models.test_hf_architectures import wrap
from tests.models.tiny import VOCABULARY, tiny_model
from tests.scan.streams import make_window
from tests.table import TableModel


def sampled_answer(model: CausalModel, window: Window, config: RunConfig, number: int) -> tuple[int, ...]:
    """What a sampler gives that draws each token from the policy, until an end-of-text token or the target's length."""
    length = len(window.suffix_ids)
    points = answer_points(config.seed, [window.window_id], answers=number + 1, tokens=length)
    answer: list[int] = []
    for point in points[0, number]:
        logits = model.next_logits([[*window.prefix_ids, *answer]])[0]
        kept = keep(logits, config.policy)
        edges = kept.log_probs.exp().cumsum(-1)
        answer.append(int(kept.token_ids[int((edges / edges[-1] <= point).sum())]))
        if answer[-1] in model.eos_ids:
            break
    return tuple(answer)


def expected_hits(model: CausalModel, window: Window, config: RunConfig) -> tuple[int, ...]:
    distance = hamming if config.distance == "hamming" else levenshtein
    hits = [0] * (config.edit_budget + 1)
    for number in range(config.sampled_answers):
        answer = sampled_answer(model, window, config, number)
        if len(answer) == len(window.suffix_ids):
            for budget in range(config.edit_budget + 1):
                hits[budget] += distance(answer, window.suffix_ids) <= budget
    return tuple(hits)


def decoded(
    model: CausalModel, windows: Sequence[Window], config: RunConfig, *, chunk_windows: int = 128
) -> list[SampledAnswers]:
    """Answers that outlive their chunk are decoded with those of later ones."""
    score = ScoreStage(model, config)
    score.chunk_windows = chunk_windows
    decoding = DecodeStage(model, config, score.spare_slots)
    settled: list[Measured] = []
    everything: list[Measured] = []
    for chunk, _ in score.chunks(windows):
        scored = score.score(chunk)
        decoding.decode(scored)
        settled += decoding.ready([*decoding.released(), *scored])
        everything += scored
    decoding.finish()
    settled += decoding.ready(decoding.released())
    assert sorted(map(id, settled)) == sorted(map(id, everything))
    return [item.answers for item in everything if item.answers is not None]


@st.composite
def cases(draw: st.DrawFn) -> tuple[TableModel, list[Window], RunConfig]:
    """Peaked models and targets on their greedy path, so that answers of every distance come up."""
    eos_ids = draw(st.sampled_from([frozenset[int](), frozenset({0}), frozenset({1, 2})]))
    spread = draw(st.sampled_from([0.5, 2.0, 4.0]))
    model = TableModel.random(draw(st.integers(0, 10_000)), vocab_size=5, spread=spread, eos_ids=eos_ids)
    windows = []
    for number in range(draw(st.integers(1, 8))):
        history = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
        prefix, length = len(history), draw(st.integers(2, 8))
        while len(history) < prefix + length:
            history.append(int(model.next_logits([history])[0].argmax()))
        for place in draw(st.sets(st.integers(prefix, prefix + length - 1), max_size=2)):
            history[place] = draw(st.integers(0, 4))
        windows.append(make_window(number, history, prefix=prefix))
    config = RunConfig(
        prefix_tokens=max(len(window.prefix_ids) for window in windows),
        suffix_tokens=max(len(window.suffix_ids) for window in windows),
        measures=draw(st.sampled_from([("near",), ("greedy", "near")])),
        greedy=draw(st.sampled_from(["decided", "full"])),
        answers=draw(st.integers(1, 3)),
        edit_budget=draw(st.sampled_from([0, 1, max(len(window.suffix_ids) for window in windows) - 1])),
        distance=draw(st.sampled_from(["levenshtein", "hamming"])),
        top_k=draw(st.sampled_from([None, 2, 3, 5])),
        top_p=draw(st.sampled_from([None, 0.8])),
        max_children=draw(st.sampled_from([1, 2, 1024])),
        temperature=draw(st.sampled_from([0.7, 1.0])),
        seed=draw(st.integers(0, 100)),
    )
    return model, windows, config


@settings(max_examples=200, deadline=None)
@given(case=cases(), chunk_windows=st.integers(1, 6))
def test_hits_are_those_of_a_textbook_sampler(
    case: tuple[TableModel, list[Window], RunConfig], chunk_windows: int
) -> None:
    model, windows, config = case
    for window, result in zip(windows, decoded(model, windows, config, chunk_windows=chunk_windows), strict=True):
        assert result.count == config.sampled_answers
        assert result.hits == expected_hits(model, window, config)


@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_answers_do_not_depend_on_the_windows_decoded_with_them(
    case: tuple[TableModel, list[Window], RunConfig],
) -> None:
    model, windows, config = case
    together = decoded(model, windows, config)
    alone = [decoded(model, [window], config)[0] for window in reversed(windows)]
    assert alone[::-1] == together


def test_a_transformer_answers_as_when_it_is_asked_with_whole_histories() -> None:
    """Logits scaled up, so that answers stay near the target for a while."""
    model = wrap(tiny_model("llama"))
    generator = torch.Generator().manual_seed(3)
    windows = []
    for number in range(6):
        history = torch.randint(0, VOCABULARY, (6,), generator=generator).tolist()
        for _ in range(10):
            history.append(int(model.next_logits([history])[0].argmax()))
        windows.append(make_window(number, history, prefix=6))
    config = RunConfig(
        prefix_tokens=6, suffix_tokens=10, answers=4, edit_budget=3, top_k=3, temperature=0.05, measures=("near",)
    )
    results = decoded(model, windows, config, chunk_windows=2)
    assert [result.hits for result in results] == [expected_hits(model, window, config) for window in windows]
    assert sum(result.hits[-1] for result in results) > 0, "some answers are near, or this shows nothing"


def test_an_answer_costs_nothing_until_it_leaves_the_target() -> None:
    """A model that can say one thing only: the first forward has said it all."""
    model = TableModel(torch.tensor([[0.0, 9.0, 0.0]]), eos_ids=frozenset())
    window = make_window(0, [2, 1, 1, 1, 1], prefix=1)
    config = RunConfig(prefix_tokens=1, suffix_tokens=4, top_k=1, edit_budget=1, answers=2, measures=("near",))
    (result,) = decoded(model, [window], config)
    assert result == SampledAnswers(2, (2, 2), 0)


def test_the_share_of_hits_is_the_mass() -> None:
    """4,000 answers of one window against enumeration. False alarm: below 1e-6 (five standard errors)."""
    model = TableModel.random(5, vocab_size=3, spread=1.0, eos_ids=frozenset({0}))
    window = make_window(0, [1, 2, 1, 2, 1], prefix=2)
    config = RunConfig(prefix_tokens=2, suffix_tokens=3, top_k=2, edit_budget=1, answers=4_000, measures=("near",))
    masses = np.zeros(2)
    for answer in np.ndindex(3, 3, 3):
        log_p = 0.0
        for place, token in enumerate(answer):
            kept = keep(model.next_logits([[*window.prefix_ids, *answer[:place]]])[0], config.policy)
            places = (kept.token_ids == token).nonzero()
            is_early_end = token == 0 and place < 2
            log_p += -np.inf if is_early_end or not len(places) else float(kept.log_probs[places[0, 0]])
        masses += np.exp(log_p) * (levenshtein(answer, window.suffix_ids) <= np.arange(2))
    (result,) = decoded(model, [window], config)
    assert np.array(result.hits) / 4_000 == pytest.approx(masses, abs=5 * 0.5 / 4_000**0.5)


def test_points_are_uniform_and_independent_of_what_is_drawn_with_them() -> None:
    """Means, neighbours and quantiles of 300,000 points; false alarm below 1e-6 each (five standard errors)."""
    names = [f"book@{place}" for place in range(3_000)]
    points = answer_points(7, names, answers=2, tokens=50)
    assert (points[5:9] == answer_points(7, names[5:9], answers=2, tokens=50)).all()
    assert (points[:, :1, :9] == answer_points(7, names, answers=1, tokens=9)).all()
    assert not (points == answer_points(8, names, answers=2, tokens=50)).any()
    flat, error = points.ravel() - 0.5, (1 / 12 / points.size) ** 0.5
    assert abs(flat.mean()) < 5 * error
    for left, right in ((points[:, 0], points[:, 1]), (points[..., :-1], points[..., 1:]), (points[:-1], points[1:])):
        assert abs(((left - 0.5) * (right - 0.5)).mean()) < 5 / 12 / left.size**0.5
    counts = np.histogram(points, bins=64, range=(0, 1))[0]
    assert np.abs(counts - points.size / 64).max() < 5 * (points.size / 64) ** 0.5
