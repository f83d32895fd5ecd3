"""Greedy generation against a naive loop over argmax with end-of-text suppressed."""

import pytest

from rote.models.table import TableModel
from rote.scan.greedy import generate_greedy, is_greedy_verbatim
from rote.types import Window
from tests.oracle import textbook_hamming, textbook_levenshtein
from tests.scan.streams import LIMITS, PREFIX, SUFFIX, VOCABULARY, knowing_model, random_windows, scored

EOS = frozenset({2, 4})


def naive_greedy(model: TableModel, window: Window) -> tuple[int, ...]:
    ids = list(window.prefix_ids)
    for _ in window.suffix_ids:
        logits = model.next_logits([ids])[0].tolist()
        allowed = [token for token in range(len(logits)) if token not in model.eos_ids]
        ids.append(max(allowed, key=lambda token: (logits[token], -token)))
    return tuple(ids[len(window.prefix_ids) :])


@pytest.mark.parametrize("eos_ids", [frozenset(), EOS], ids=["no end", "with end"])
@pytest.mark.parametrize("slots", [1, 4, 50])
def test_generation_equals_the_naive_loop(eos_ids: frozenset[int], slots: int) -> None:
    model = TableModel.random(0, vocab_size=VOCABULARY, eos_ids=eos_ids)
    windows = random_windows(20)
    results = {r.window.window_id: r for r in generate_greedy(model, windows, slots=slots, limits=LIMITS)}
    assert sorted(results) == sorted(window.window_id for window in windows)
    for window in windows:
        result = results[window.window_id]
        expected = naive_greedy(model, window)
        assert result.token_ids == expected
        assert eos_ids.isdisjoint(result.token_ids)
        assert result.hamming == textbook_hamming(expected, window.suffix_ids)
        assert result.levenshtein == textbook_levenshtein(expected, window.suffix_ids)
        assert result.token_evals == PREFIX + SUFFIX - 1


def test_ties_go_to_the_lower_id() -> None:
    import torch

    model = TableModel(torch.zeros(8, VOCABULARY), eos_ids=frozenset({0}))
    (result,) = generate_greedy(model, random_windows(1), slots=1, limits=LIMITS)
    assert result.token_ids == (1,) * SUFFIX


def test_the_shortcut_by_ranks_says_what_generation_says() -> None:
    """Known windows have rank 0 everywhere; some of them hold an end-of-text token, which is never generated."""
    windows = random_windows(60, seed=3)
    model = knowing_model(windows[:40], eos_ids=frozenset({5}))
    generated = {r.window.window_id: r for r in generate_greedy(model, windows, slots=8, limits=LIMITS)}
    shortcuts = 0
    for score in scored(model, windows):
        window = score.window
        if is_greedy_verbatim(window.suffix_ids, score.suffix_ranks, model.eos_ids):
            assert generated[window.window_id].levenshtein == 0
            shortcuts += 1
        elif model.eos_ids.isdisjoint(window.suffix_ids):
            assert generated[window.window_id].levenshtein > 0
    assert 5 < shortcuts < 40


def test_windows_are_taken_as_slots_become_free() -> None:
    taken = 0

    def stream() -> object:
        nonlocal taken
        for window in random_windows(30):
            taken += 1
            yield window

    results = generate_greedy(TableModel.random(1, vocab_size=VOCABULARY), stream(), slots=3, limits=LIMITS)  # type: ignore[arg-type]
    next(results)
    assert taken <= 2 * 3
