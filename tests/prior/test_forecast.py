"""What a run says before its long pass is what comes out."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from byrote.prior.draws import DrawnPrefixes
from byrote.prior.run import prior_to_folder
from byrote.prior.verdicts import (
    PriorVerdict,
    forecast,
    forecast_sentences,
    ratio_interval,
    ratio_verdict,
    sound_log_interval,
)
from byrote.stats.intervals import undefined
from byrote.stats.prior_mean import PriorSums
from byrote.types import Interval
from tests.prior.priors import Silent, config

M = 0.01


def drawn(draws: int, *, stretches: float = math.inf) -> DrawnPrefixes:
    return DrawnPrefixes(((1, 2),), np.array([[draws]]), stretches=stretches)


def scored(conditional: float, n: float) -> tuple[float, float, Interval]:
    return math.log(conditional), M, Interval(math.log(n), math.log(n))


@pytest.mark.parametrize("draws", [50, 1000, 20_000])
def test_what_is_out_of_reach_is_unsettled_even_if_no_draw_allows_the_suffix(draws: int) -> None:
    (best,) = PriorSums.of(np.array([[-np.inf]]), np.array([[draws]])).estimates()
    for conditional in (0.02, 0.3, 1.0):
        for n in (5.0, 100.0, 1e3, 1e5):
            one = scored(conditional, n)
            found = forecast([one], drawn(draws))
            verdict = ratio_verdict(ratio_interval(one[0], sound_log_interval(best)), one[2])
            assert (found.within_reach == 1) == (verdict is PriorVerdict.MEMORIZED)
            assert (found.prefixes_needed <= draws) == (found.within_reach == 1)


def test_suffixes_at_most_m_are_not_counted() -> None:
    found = forecast([scored(0.01, 5.0), scored(0.5, 5.0)], drawn(1000))
    assert (found.extractable, found.within_reach) == (1, 1)


def test_stretches_of_text_and_not_draws_decide_what_is_within_reach() -> None:
    assert forecast([scored(0.5, 100.0)], drawn(1000)).within_reach == 1
    assert forecast([scored(0.5, 100.0)], drawn(1000, stretches=50)).within_reach == 0


def test_without_an_upper_end_of_n_nothing_is_within_reach_and_the_sentence_says_why() -> None:
    found = forecast([(-1.0, M, undefined("why"))], drawn(5))
    assert found.within_reach == 0
    assert "no upper end" in forecast_sentences(found, drawn(5))[-1]


def test_sentences_name_what_cannot_be_settled_and_the_draws_it_would_take() -> None:
    found = forecast([scored(0.5, 1e6), scored(0.5, 10.0)], drawn(1000))
    first, second = forecast_sentences(found, drawn(1000))
    assert "1,000 independent prefixes show no ratio above 136" in first
    assert "1 of the 2 suffixes" in first
    assert "7.4 × 10⁶ prefixes" in second
    assert len(forecast_sentences(forecast([scored(0.5, 10.0)], drawn(1000)), drawn(1000))) == 1


def test_a_reference_text_that_is_too_short_for_them_is_named() -> None:
    found = forecast([scored(0.5, 1e6)], drawn(1000))
    short = forecast_sentences(found, drawn(1000, stretches=30_000))[1]
    assert "has 30,000 that do not overlap: give a larger --prior-text" in short
    assert "--prior-text" not in forecast_sentences(found, drawn(1000, stretches=10**9))[1]


def test_the_run_says_it_before_the_long_pass(place: Path, tmp_path: Path) -> None:
    said: list[str] = []
    sentences_at: list[int] = []

    class Watched(Silent):
        def advance(self, windows: int) -> None:
            sentences_at.append(len(said))

    options = config(place, tmp_path / "out", stride_chars=1, least_probability=0.0)
    prior_to_folder(options, progress=Watched(), say=said.append)
    cost, basis = said[:2]
    # 40 draws at most, each 6 tokens and 2 inner ones of 4 windows and 3 generic texts, in two passes.
    assert re.search(r"^[34]\d prefixes × 4 suffixes and the generic texts: at most \d{3} tokens to evaluate", cost)
    assert re.search(r"^\d\d independent prefixes show no ratio above", basis)
    assert "4 of the 4 suffixes" in basis
    # What it costs, the pass over the generic texts, what it cannot settle, the pass over what is scored.
    assert sentences_at == sorted(sentences_at)
    assert (sentences_at[0], sentences_at[-1]) == (1, len(said))
