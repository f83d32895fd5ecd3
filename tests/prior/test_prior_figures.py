"""Figures of a prior run are checked for what they draw: every suffix, its verdict, the thresholds."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from byrote.report.figures.prior import ShownThreshold, prior_scatter, prior_shares, ratios_by_length
from byrote.report.figures.style import save_bytes
from byrote.types import Interval

LOG_TEN = math.log(10.0)
VERDICTS = ["memorized", "merely_likely", "unsettled", "not_extractable"]


def suffixes(**changes: Any) -> pl.DataFrame:
    conditional, prior = np.log([0.5, 0.5, 0.1, 1e-9]), np.log([1e-6, 0.4, 1e-3, 1e-9])
    values: dict[str, Any] = {
        "log_p_conditional": conditional,
        "log_p_prior": prior,
        "log_ratio": conditional - prior,
        "prior_verdict": VERDICTS,
        "split": ["target", "target", "control", "target"],
        "suffix_ids": [[1] * tokens for tokens in (4, 4, 6, 6)],
        **changes,
    }
    return pl.DataFrame(values)


def threshold(tokens: int = 4, n: float = 10.0, *, high: float = 1000.0) -> ShownThreshold:
    return ShownThreshold(tokens, 0.01, math.log(n), Interval(math.log(2.0), math.log(high)), (0.0, 1.0, 4.0))


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def points(axes: Axes) -> np.ndarray:
    drawn = [one for one in axes.collections if isinstance(one, PathCollection)]
    return np.concatenate([np.asarray(one.get_offsets()).reshape(-1, 2) for one in drawn])


def test_the_scatter_draws_every_suffix_by_verdict_whatever_its_length() -> None:
    axes = prior_scatter(suffixes(), threshold(), title="").figure.axes[0]
    drawn = sorted(map(tuple, points(axes).tolist()))
    expected = sorted(zip(suffixes()["log_p_prior"] / LOG_TEN, suffixes()["log_p_conditional"] / LOG_TEN, strict=True))
    assert np.allclose(drawn, expected)
    labels = legend(axes)
    for words in ("memorized (1)", "merely likely (1)", "unsettled (1)", "P(s|p) ≤ m (1)", "hollow: control"):
        assert words in labels
    assert "n = 10 for 4 tokens" in labels
    assert "m = 0.01 for 4 tokens" in labels


def test_probabilities_of_zero_stand_at_the_edge_and_are_counted() -> None:
    none = np.array([-np.inf, -1.0, -2.0, -np.inf])
    bare = suffixes(log_p_prior=none, log_ratio=np.array([np.inf, 0, 0, -np.inf]))
    axes = prior_scatter(bare, threshold(), title="").figure.axes[0]
    assert len(points(axes)) == 4
    assert np.isfinite(points(axes)).all()
    assert [text.get_text() for text in axes.texts] == ["2 with a probability of 0 stand at the edge"]


def test_ratios_stand_at_their_length_beside_n_and_the_generic_texts() -> None:
    axes = ratios_by_length(suffixes(), [threshold(6, 30.0), threshold(4, 10.0)], title="").figure.axes[0]
    drawn = points(axes)
    assert sorted(np.round(drawn[:, 0])) == [4, 4, 6, 6]
    assert np.allclose(sorted(drawn[:, 1]), sorted(suffixes()["log_ratio"] / LOG_TEN))
    lines = {str(line.get_label()): line for line in axes.lines}
    assert np.allclose(lines["n, their mean"].get_xydata(), [[4, 1.0], [6, math.log10(30.0)]])
    generic = [line for line in axes.lines if line.get_marker() == "_" and len(np.asarray(line.get_xdata()))]
    assert sum(len(np.asarray(line.get_xdata())) for line in generic) == 6
    assert "95 % of n" in legend(axes)


@pytest.mark.parametrize(
    "shown",
    [
        [threshold(high=math.inf)],
        [ShownThreshold(4, 0.0, math.nan, Interval(math.nan, math.nan, 0.95, "why"), ())],
        [ShownThreshold(4, 0.01, math.log(8.0), Interval(math.log(8.0), math.log(8.0)), ())],
    ],
)
def test_thresholds_without_ends_or_texts_are_drawn_as_far_as_they_go(shown: list[ShownThreshold]) -> None:
    for drawing in (prior_scatter(suffixes(), shown[0], title=""), ratios_by_length(suffixes(), shown, title="")):
        assert save_bytes(drawing.figure, "svg")
        assert np.isfinite(drawing.figure.axes[0].get_ylim()).all()


def test_nothing_but_impossible_suffixes_can_be_drawn() -> None:
    nothing = np.full(4, -np.inf)
    bare = suffixes(
        log_p_conditional=nothing, log_p_prior=nothing, log_ratio=nothing, prior_verdict=["not_extractable"] * 4
    )
    for drawing in (prior_scatter(bare, threshold(), title=""), ratios_by_length(bare, [threshold()], title="")):
        assert save_bytes(drawing.figure, "svg")


def test_shares_show_memorized_and_unsettled_parts_of_what_is_above_m() -> None:
    none = {"suffixes": 100, "extractable": 0, "memorized": 0, "unsettled": 0, "published_memorized": 0}
    found = {"extractable": 40, "memorized": 30, "unsettled": 6, "published_memorized": 35}
    shares = {"24 tokens": none | found, "5 tokens": none}
    axes = prior_shares(shares, is_by_prefix_length=True).figure.axes[0]
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == pytest.approx([0.4, 0.0, 0.3, 0.0, 0.06, 0.0])
    assert axes.patches[4].get_y() == pytest.approx(0.3)
    assert list(axes.lines[0].get_ydata()) == pytest.approx([0.35, 0.0])
    assert [text.get_text() for text in axes.texts] == ["30 of 40"]
