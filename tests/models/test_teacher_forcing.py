"""p_verbatim against one token at a time; shapes, order, and end-of-text tokens."""

import math
from collections.abc import Sequence

import pytest

from byrote.models.base import WindowScores
from byrote.models.scoring import score_verbatim
from byrote.policy import Policy
from byrote.types import Window
from tests.oracle import textbook_policy
from tests.scan.streams import VOCABULARY, make_window, random_windows
from tests.table import TableModel

POLICIES = [Policy(1.0, 4), Policy(1.0, None), Policy(0.5, None, 0.9)]


def naive_log_p(model: TableModel, window: Window, policy: Policy) -> float:
    """One history at a time, in plain Python."""
    total = 0.0
    for place in range(len(window.prefix_ids), len(window.ids)):
        allowed = textbook_policy(model.next_logits([window.ids[:place]])[0].tolist(), policy)
        chance = allowed.get(window.ids[place], 0.0)
        total += math.log(chance) if chance else -math.inf
    return total


def test_scores_equal_one_token_at_a_time_for_every_policy() -> None:
    model = TableModel.random(0, vocab_size=VOCABULARY)
    windows = random_windows(30)
    scores = list(score_verbatim(model, windows, POLICIES, batch_windows=8))
    assert [score.window for score in scores] == windows
    impossible = 0
    for score in scores:
        expected = [naive_log_p(model, score.window, policy) for policy in POLICIES]
        assert score.log_p == pytest.approx(expected, abs=1e-5)
        assert score.p == pytest.approx(math.exp(expected[0]), rel=1e-5)
        assert math.prod(score.target_probs) == pytest.approx(score.p, rel=1e-9)
        assert score.model_log_p == pytest.approx(naive_log_p(model, score.window, Policy(1.0, None)), abs=1e-5)
        assert score.token_evals == len(score.window.ids) - 1
        impossible += expected[0] == -math.inf
    assert 0 < impossible < len(windows), "top-k must forbid some windows and allow others"


@pytest.mark.parametrize("batch_windows", [1, 3, 100])
def test_scores_do_not_depend_on_the_batch(batch_windows: int) -> None:
    model = TableModel.random(1, vocab_size=VOCABULARY)
    windows = random_windows(10)
    assert list(score_verbatim(model, windows, POLICIES, batch_windows=batch_windows)) == list(
        score_verbatim(model, windows, POLICIES, batch_windows=4)
    )


class CountingModel(TableModel):
    """Remembers the shapes it was asked to score."""

    def score(self, windows: Sequence[Sequence[int]], suffix_tokens: int, policies: Sequence[Policy]) -> WindowScores:
        self.asked = [*getattr(self, "asked", []), (len(windows), {len(window) for window in windows}, suffix_tokens)]
        return super().score(windows, suffix_tokens, policies)


def test_windows_of_one_shape_share_a_pass_and_keep_their_order() -> None:
    model = CountingModel(TableModel.random(2, vocab_size=VOCABULARY)._table)
    ids = [1, 2, 3, 4, 5, 0, 1, 2]
    windows = [
        *(make_window(number, ids) for number in range(3)),
        *(make_window(number, ids, prefix=4) for number in range(3, 5)),
        make_window(5, ids[:6]),
    ]
    scores = list(score_verbatim(model, iter(windows), POLICIES, batch_windows=2))
    assert [score.window for score in scores] == windows
    assert model.asked == [(2, {8}, 5), (1, {8}, 5), (2, {8}, 4), (1, {6}, 3)]


def test_an_end_of_text_token_inside_the_suffix_cannot_be_generated() -> None:
    model = TableModel.random(3, vocab_size=VOCABULARY, eos_ids=frozenset({5}))
    inside, at_the_end, before = (
        make_window(0, [1, 2, 3, 1, 5, 1, 1, 1]),
        make_window(1, [1, 2, 3, 1, 1, 1, 1, 5]),
        make_window(2, [5, 2, 3, 1, 1, 1, 1, 1]),
    )
    policies = [Policy(1.0, None), Policy(2.0, None)]
    scores = list(score_verbatim(model, [inside, at_the_end, before], policies, batch_windows=8))
    assert scores[0].log_p == (-math.inf, -math.inf)
    assert scores[0].p == 0
    assert all(math.isfinite(value) for score in scores[1:] for value in score.log_p)
