"""Verdicts follow the definition, and those that are called settled are wrong no more often than stated.

For other generic texts nothing is stated: with heavy tails n lies outside its interval in one study of five.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.prior.calibration import GenericScore, calibrate
from byrote.prior.report import basis_sentences, threshold_notes
from byrote.prior.verdicts import (
    PriorVerdict,
    default_least_conditional,
    point_verdict,
    ratio_interval,
    ratio_verdict,
    settled_verdict,
    sound_log_interval,
)
from byrote.stats.prior_mean import PriorEstimate, PriorSums
from byrote.types import Interval

M, N = 0.01, math.log(10.0)


def test_published_thresholds_stand_at_4_and_50_tokens_and_fall_between() -> None:
    assert default_least_conditional(4) == pytest.approx(1e-2)
    assert default_least_conditional(50) == pytest.approx(1e-4)
    assert default_least_conditional(27) == pytest.approx(1e-3)
    values = [default_least_conditional(tokens) for tokens in range(1, 80)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(
    ("conditional", "ratio", "expected"),
    [
        (0.5, 5000.0, PriorVerdict.MEMORIZED),
        (0.5, 2.0, PriorVerdict.MERELY_LIKELY),
        (0.01, 1e7, PriorVerdict.NOT_EXTRACTABLE),
        (0.5, 10.0, PriorVerdict.MERELY_LIKELY),
    ],
)
def test_point_verdict_is_the_definition_with_strict_comparisons(
    conditional: float, ratio: float, expected: PriorVerdict
) -> None:
    found = point_verdict(math.log(conditional), math.log(ratio), least_conditional=M, log_least_ratio=math.log(10.0))
    assert found is expected


def test_an_impossible_suffix_is_not_extractable_even_at_m_zero() -> None:
    found = point_verdict(-math.inf, -math.inf, least_conditional=0.0, log_least_ratio=0.0)
    assert found is PriorVerdict.NOT_EXTRACTABLE


ENDS = st.one_of(st.just(-math.inf), st.just(math.inf), st.floats(-50, 50))


@given(st.tuples(ENDS, ENDS), st.tuples(ENDS, ENDS))
def test_intervals_that_meet_settle_nothing_and_others_what_their_points_say(
    ratio_ends: tuple[float, float], threshold_ends: tuple[float, float]
) -> None:
    ratio, threshold = (Interval(*sorted(ends)) for ends in (ratio_ends, threshold_ends))
    found = ratio_verdict(ratio, threshold)
    meets = max(ratio.low, threshold.low) < min(ratio.high, threshold.high)
    if meets:
        assert found is PriorVerdict.UNSETTLED
    for point in (ratio.low, ratio.high):
        for n in (threshold.low, threshold.high):
            if found is not PriorVerdict.UNSETTLED:
                assert point_verdict(-1.0, point, least_conditional=M, log_least_ratio=n) is found


def test_undefined_intervals_settle_nothing() -> None:
    unknown = Interval(math.nan, math.nan, 0.95, "why")
    assert ratio_verdict(unknown, Interval(N, N)) is PriorVerdict.UNSETTLED
    assert ratio_verdict(Interval(90.0, 90.0), unknown) is PriorVerdict.UNSETTLED
    assert ratio_verdict(Interval(math.inf, math.inf), Interval(1.0, math.inf)) is PriorVerdict.UNSETTLED
    low = settled_verdict(-9.0, unknown, unknown, least_conditional=M)
    assert low is PriorVerdict.NOT_EXTRACTABLE


class Study:
    """A calibration and one suffix, repeated with known truth: texts and prefixes drawn anew every time."""

    def __init__(self, *, sigma: float, spread: float, draws: int | None, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sigma, self.spread, self.draws = sigma, spread, draws

    def false_verdicts(self, repetitions: int, *, offset: float) -> float:
        """Share of settled verdicts that contradict the truth; the suffix's ratio is `offset` nats from true n."""
        wrong = 0
        for _ in range(repetitions):
            ratios, others = self.rng.normal(3.0, self.sigma, (2, 12))
            log_n = float(np.log(np.exp(others).mean()))
            priors = np.append(self.rng.normal(-14.0, 1.0, 12), -9.0)
            conditionals = priors + np.append(ratios, log_n + offset)
            *generic, mine = self._estimates(priors)
            threshold = calibrate(
                4, [GenericScore(float(c), p) for c, p in zip(conditionals[:-1], generic, strict=True)]
            )
            ratio = ratio_interval(float(conditionals[-1]), sound_log_interval(mine))
            truth = PriorVerdict.MEMORIZED if offset > 0 else PriorVerdict.MERELY_LIKELY
            wrong += ratio_verdict(ratio, threshold.interval) not in (truth, PriorVerdict.UNSETTLED)
        return wrong / repetitions

    def _estimates(self, priors: np.ndarray) -> list[PriorEstimate]:
        if self.draws is None:
            whole = PriorSums.of(priors[None], np.ones((1, 1), dtype=np.int64))
            return whole.estimates(independent=math.inf)
        # P(s|q) is log-normal over prefixes with mean P(s): the larger the spread, the fewer prefixes carry it.
        log_p = priors + self.rng.normal(-(self.spread**2) / 2, self.spread, (self.draws, len(priors)))
        return PriorSums.of(log_p, np.ones((self.draws, 1), dtype=np.int64)).estimates()


@pytest.mark.parametrize("offset", [-1e-6, 1e-6])
@pytest.mark.parametrize(
    ("sigma", "spread", "draws"), [(0.5, 0.0, None), (3.0, 0.0, None), (0.5, 1.0, 400), (3.0, 3.0, 100)]
)
def test_settled_verdicts_hold_for_other_generic_texts_where_ratios_are_log_normal(
    sigma: float, spread: float, draws: int | None, offset: float
) -> None:
    """The ratio stands a hair from the n of another list of texts, where errors are easiest.

    At most 5 % where ratios are log-normal, as here. Where that holds, more than 10 % of 300 have a chance below 3e-4;
    the seed is fixed. With n taken as known and the better of two intervals for the ratio, half are wrong where P(s) is
    exact and 30 % with the 400 draws.
    """
    study = Study(sigma=sigma, spread=spread, draws=draws, seed=11)
    assert study.false_verdicts(300, offset=offset) <= 0.10


@pytest.mark.parametrize("offset", [-1e-6, 1e-6])
def test_the_draws_alone_settle_wrongly_no_more_often_than_stated(offset: float) -> None:
    """n known, P(s|q) 0 or 1: the hardest draws. Stated 2.5 % a side; more than 4.5 % of 2,000 come up once in 1e7."""
    rng = np.random.default_rng(3)
    wrong = 0
    for hits in rng.binomial(400, 0.2, 2000).tolist():
        counts = np.array([[hits], [400 - hits]])
        (estimate,) = PriorSums.of(np.array([[0.0], [-np.inf]]), counts).estimates()
        ratio = ratio_interval(math.log(0.2) + N + offset, sound_log_interval(estimate))
        truth = PriorVerdict.MEMORIZED if offset > 0 else PriorVerdict.MERELY_LIKELY
        wrong += ratio_verdict(ratio, Interval(N, N)) not in (truth, PriorVerdict.UNSETTLED)
    assert wrong / 2000 <= 0.045


def test_a_ratio_far_above_every_generic_text_is_settled_as_memorized() -> None:
    """The error rate is not bought by settling nothing."""
    study = Study(sigma=1.0, spread=0.0, draws=None, seed=5)
    assert study.false_verdicts(200, offset=-9.0) == 0.0
    scores = [
        GenericScore(prior + ratio, _exact(prior))
        for prior, ratio in zip(range(-30, -12), np.linspace(1, 4, 18), strict=True)
    ]
    threshold = calibrate(4, scores)
    assert ratio_verdict(Interval(12.0, 12.0), threshold.interval) is PriorVerdict.MEMORIZED
    assert ratio_verdict(Interval(0.0, 0.0), threshold.interval) is PriorVerdict.MERELY_LIKELY


def test_no_chance_of_error_is_stated_for_other_generic_texts() -> None:
    totals: dict[str, Any] = {
        "reference": {"is_exhaustive": False, "draws": 5000, "independent_prefixes": 5000},
        "windows": 10,
        "available": 10,
        "in_reference": 0,
        "by_split": {},
    }
    drawn = " ".join(basis_sentences(totals))
    assert "about text of the reference text's kind and this n" in drawn
    overlapping = {"is_exhaustive": True, "draws": 5000, "independent_prefixes": 40}
    assert "count 40 of them as independent" in " ".join(basis_sentences(totals | {"reference": overlapping}))
    length = {"generic_texts": 18, "reason": None, "generic_texts_unseen": 0, "generic_suffix_tokens": 4}
    (about_n, *_) = threshold_notes([{"by_suffix_tokens": {"4": length}}])
    assert "if the ratios' logarithms are normal" in about_n
    assert "with heavier tails" in about_n


def _exact(log_prior: float) -> PriorEstimate:
    return PriorEstimate(log_prior, 0.0, 1.0, 1.0, 1, (log_prior,), math.inf)
