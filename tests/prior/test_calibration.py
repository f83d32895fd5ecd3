"""n: the mean ratio of generic texts that the policy can say, with an interval that holds."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.errors import ConfigError, TextError
from byrote.prior.calibration import (
    LEAST_TEXTS,
    GenericScore,
    RatioThreshold,
    calibrate,
    generic_kind,
    generic_length,
    generic_windows,
    read_generic,
)
from byrote.stats.prior_mean import PriorEstimate, PriorSums

TEXTS = st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=40), min_size=LEAST_TEXTS, max_size=8)


def exact(probability: float) -> PriorEstimate:
    log_p = math.log(probability) if probability else -math.inf
    return PriorEstimate(log_p, 0.0, 1.0, 1.0, 10, (log_p,), math.inf)


def score(conditional: float, prior: float) -> GenericScore:
    return GenericScore(math.log(conditional) if conditional else -math.inf, exact(prior))


@given(TEXTS, st.integers(1, 30), st.integers(1, 30))
def test_pairs_are_the_two_sides_of_the_middle(texts: list[list[int]], prefix_tokens: int, suffix_tokens: int) -> None:
    length = generic_length(texts, suffix_tokens)
    pairs = generic_windows(texts, prefix_tokens=prefix_tokens, suffix_tokens=length, bos_id=None)
    assert len(pairs) >= LEAST_TEXTS
    for pair in pairs:
        assert len(pair.suffix_ids) == length <= suffix_tokens
        assert 1 <= len(pair.prefix_ids) <= prefix_tokens
        sides = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in texts]
        assert any(
            tuple(first[-prefix_tokens:]) == pair.prefix_ids and tuple(second[:length]) == pair.suffix_ids
            for first, second in sides
        )


@given(TEXTS, st.integers(2, 20))
def test_a_longer_suffix_continues_the_shorter_one_of_the_same_text(texts: list[list[int]], tokens: int) -> None:
    """So that n at neighbouring lengths rests on the same texts and does not leap by a change of texts."""
    long = generic_windows(texts, prefix_tokens=5, suffix_tokens=tokens, bos_id=0)
    short = generic_windows(texts, prefix_tokens=5, suffix_tokens=tokens - 1, bos_id=0)
    cut = [(pair.prefix_ids, pair.suffix_ids[:-1]) for pair in long]
    assert not Counter(cut) - Counter((pair.prefix_ids, pair.suffix_ids) for pair in short)
    assert all(pair.prefix_ids[0] == 0 and len(pair.prefix_ids) <= 5 for pair in long)


@pytest.mark.parametrize("texts", [[[1, 2]] * 2, [[1, 2], [1, 2], [1]], []])
def test_too_few_generic_texts_are_refused(texts: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="too few or too short"):
        generic_length(texts, 4)


def test_n_is_the_arithmetic_mean_with_geometric_mean_and_largest_share_beside_it() -> None:
    found = calibrate(4, [score(0.2, 0.1), score(0.8, 0.1), score(0.5, 0.1)])
    assert math.exp(found.log_least_ratio) == pytest.approx(5.0)
    assert math.exp(found.log_geometric_mean) == pytest.approx((2 * 8 * 5) ** (1 / 3))
    assert found.largest_share == pytest.approx(8 / 15)
    assert found.calibrated_at_tokens == 4
    assert found.interval.low < found.log_least_ratio < found.interval.high


def test_one_suffix_that_no_reference_prefix_allows_does_not_make_n_infinite() -> None:
    usual = [score(0.2, 0.1), score(0.8, 0.1), score(0.5, 0.1)]
    found = calibrate(4, [*usual, score(0.3, 0.0)])
    assert found.log_least_ratio == calibrate(4, usual).log_least_ratio
    assert found.unseen == 1
    # What was left out has no known ratio, so n is not bounded from above and nothing is called memorized by it.
    assert found.interval.high == math.inf
    assert math.isfinite(found.interval.low)


def test_suffixes_that_the_policy_cannot_say_do_not_pull_n_to_zero() -> None:
    usual = [score(0.2, 0.1), score(0.8, 0.1), score(0.5, 0.1)]
    found = calibrate(4, [*usual, score(0.0, 0.1), score(0.0, 0.0)])
    assert found.log_least_ratio == calibrate(4, usual).log_least_ratio
    assert found.interval == calibrate(4, usual).interval
    assert (found.impossible, found.unseen) == (2, 0)


@pytest.mark.parametrize("scores", [[score(0.0, 0.0)] * 18, [score(0.1, 0.0)] * 18, [score(0.2, 0.1)] * 2])
def test_n_is_undefined_with_a_reason_where_the_policy_can_say_too_few(scores: list[GenericScore]) -> None:
    found = calibrate(4, scores)
    assert math.isnan(found.log_least_ratio)
    assert not found.interval.is_defined
    assert "set n with --least-ratio" in (found.interval.reason or "")


def test_n_set_by_the_user_is_known() -> None:
    found = RatioThreshold.given(8.0)
    assert found.interval.low == found.interval.high == found.log_least_ratio == pytest.approx(math.log(8.0))
    assert RatioThreshold.given(0.0).log_least_ratio == -math.inf
    assert math.isnan(found.log_geometric_mean)


def drawn_scores(log_p: np.ndarray, conditionals: np.ndarray) -> list[GenericScore]:
    """Scores from `log_p` [draws, texts]."""
    estimates = PriorSums.of(log_p, np.ones((len(log_p), 1), dtype=np.int64)).estimates()
    return [GenericScore(float(own), prior) for own, prior in zip(conditionals, estimates, strict=True)]


@pytest.mark.parametrize(("sigma", "draws"), [(1.0, None), (4.0, None), (1.0, 50), (4.0, 50)])
def test_the_interval_holds_the_n_of_as_many_other_texts(sigma: float, draws: int | None) -> None:
    # The level is 0.95; that fewer than 0.89 of 200 cover has a chance of 4e-4 where 0.95 is true, and it is seeded.
    rng = np.random.default_rng(int(10 * sigma))
    covered = 0
    for _ in range(200):
        ratios, others = rng.normal(2.0, sigma, (2, 12))
        truth = float(np.log(np.exp(others).mean()))
        priors = rng.normal(-15.0, 2.0, 12)
        if draws is None:
            scores = [GenericScore(r + v, exact(math.exp(v))) for r, v in zip(ratios, priors, strict=True)]
        else:
            # P(s|q) over prefixes is log-normal around each prior, a few prefixes carrying most of it.
            log_p = priors + rng.normal(-2.0, 2.0, (draws, 12))
            scores = drawn_scores(log_p, ratios + priors)
        low, high, _, _ = calibrate(4, scores).interval
        covered += low <= truth <= high
    assert covered / 200 >= 0.89


def test_the_interval_has_room_for_the_draws_where_one_text_carries_n() -> None:
    """A log-normal prediction from 39 equal ratios and one of e³⁰ lies below their mean; n by other draws may not."""
    draws = np.full((50, 40), -40.0)
    ratios = np.append(np.zeros(39), 30.0)
    found = calibrate(4, drawn_scores(draws, ratios - 40.0))
    assert found.interval.high >= found.log_least_ratio - math.log(0.0125) - 1e-9
    assert found.interval.low <= found.log_least_ratio


def test_n_of_the_texts_at_hand_is_inside_whatever_the_tails() -> None:
    """Log-ratios of Student's distribution with two degrees of freedom; P(s|q) spread over many powers of ten.

    Each end may leave out the n that all prefixes would give in 1.25 % of 400 studies; more than 16 have a chance
    below 2e-5, and it is seeded.
    """
    rng = np.random.default_rng(8)
    above = below = 0
    for _ in range(400):
        ratios, priors = 2.0 + rng.standard_t(2, 12), rng.normal(-15.0, 2.0, 12)
        log_p = priors + rng.normal(-4.5, 3.0, (50, 12))  # mean P(s) over prefixes
        low, high, _, _ = calibrate(4, drawn_scores(log_p, ratios + priors)).interval
        truth = float(np.log(np.exp(ratios).mean()))
        above, below = above + (truth > high), below + (truth < low)
    assert max(above, below) <= 16


def test_our_generic_texts_serve_suffixes_of_fifty_tokens_in_any_tokenizer() -> None:
    texts = read_generic(None)
    # No tokenizer of words or pieces has fewer tokens than words.
    long = [text for text in texts if len(text.split()) >= 100]
    short = [text for text in texts if 8 <= len(text.split()) <= 16]
    assert len(long) >= 12
    assert len(short) >= 12
    assert len(long) + len(short) == len(texts)
    assert len(set(texts)) == len(texts)


def test_short_texts_serve_short_suffixes_and_long_ones_the_others() -> None:
    short, long = [[1] * 10, [2] * 12, [3] * 14], [[4] * 120, [5] * 130, [6] * 140]
    texts = [*long, *short]
    assert generic_kind(texts, 4) == generic_kind(texts, 6) == short
    # Only one of three has seven tokens in its second half.
    assert generic_kind(texts, 7) == generic_kind(texts, 50) == long
    assert generic_kind(short, 50) == short
    assert generic_kind([*long, [1] * 10], 4) == [*long, [1] * 10]


def test_generic_texts_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(TextError, match="cannot be read"):
        read_generic("/nowhere/generic.txt")
