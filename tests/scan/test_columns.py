"""Measures own their columns: what a scan's tables hold follows from the measures, and each fills exactly its own."""

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.cli.flags import gather
from byrote.errors import ConfigError
from byrote.models.teacher_forcing import VerbatimScore
from byrote.options import flags_of, option
from byrote.scan import measures as columns
from byrote.scan.base import Measure
from byrote.scan.decode import GreedyResult
from byrote.scan.measured import Measured
from byrote.scan.measures import measures_of, results_schema
from byrote.scan.membership import MembershipScores
from byrote.scan.options import MEASURES, RunConfig
from byrote.scan.search import NearResult
from byrote.scan.self_check import Verified
from byrote.store.columns import Column, window_of, window_row
from byrote.store.tables import table_of
from byrote.types import Bounds, Estimate, Interval, Split, StopReason, Verdict, Window

CONTRACT = (
    "window_id document split char_start suffix_char_start char_end prefix_ids suffix_ids log_p_verbatim p_verbatim "
    "suffix_ranks greedy_hamming greedy_levenshtein greedy_is_beyond_budget mass_lower mass_upper search_lower "
    "open_mass eos_mass refuted_mass verdict stop_reason stop_step screen_rating was_screened screen_density "
    "mass_estimate mass_standard_error mass_low mass_high mass_limit mass_samples mass_hits mass_sampled mass_base "
    "sampled_verdict token_evals"
)
WINDOW = Window("a.txt@20", "a.txt", Split.CONTROL, 20, 29, 38, (1, 2, 3), (4, 5))
SCORE = VerbatimScore(WINDOW, (-math.inf, -1.5), (0.5, 0.25), (1, 7), -2.0)
NEAR = NearResult(
    Bounds((0.0, 0.5), (0.0, 0.75)), Verdict.EXTRACTABLE, StopReason.FINISHED, 2, 12, 0.5, False, outcome=None
)
ITEM = Measured(
    SCORE,
    None,
    greedy=GreedyResult((4, 6), 1, 1, 5),
    near=NEAR,
    verified=Verified(0.5, 1.0, 1e-7, 10),
    estimate=Estimate(0.5, 0.1, Interval(0.4, 0.6), 0.6, 10, 100, hits=5, sampled_mass=0.5, base_mass=0.3),
    membership=MembershipScores(2.0, 0.1, -3.0, -0.5),
)
EVERYTHING = RunConfig(measures=(*MEASURES, "membership"), sweep=("k=10",), verify=True, residual=100, greedy="full")


def names(measures: tuple[Measure, ...]) -> list[str]:
    return [column.name for column in results_schema(measures)]


def test_default_measures_give_the_columns_of_the_contract() -> None:
    assert names(measures_of(RunConfig())) == CONTRACT.split()


def test_columns_of_a_measure_not_asked_for_are_absent() -> None:
    asked = names(measures_of(RunConfig(measures=("greedy",), sweep=("k=10",))))
    assert "greedy_hamming" in asked
    assert not {"p_verbatim", "suffix_ranks", "mass_lower", "verdict"} & set(asked)


@pytest.mark.parametrize("measure", measures_of(EVERYTHING), ids=lambda measure: measure.name)
def test_each_measure_fills_exactly_its_columns(measure: Measure) -> None:
    filled = measure.fill(ITEM)
    table = table_of([filled], measure.columns)
    assert table.to_pylist() == [filled]


@pytest.mark.parametrize("measure", [columns.VERIFY, columns.ESTIMATE], ids=lambda measure: measure.name)
def test_a_window_without_such_a_result_has_nulls(measure: Measure) -> None:
    assert measure.fill(Measured(SCORE, None)) == {column.name: None for column in measure.columns}


@dataclass(frozen=True, kw_only=True)
class ToyOptions:
    surprise_floor: float | None = option(None, "Report no surprise below this.", group="estimates", at_least=0)


TOY = Measure(
    "surprise",
    (Column("surprise", "float64"), Column("hardest_rank", "int32")),
    lambda item: {"surprise": -item.score.model_log_p, "hardest_rank": max(item.score.suffix_ranks)},
    lambda config: getattr(config, "surprise_floor", None) is not None,
    ToyOptions,
)


@dataclass(frozen=True, kw_only=True)
class ToyConfig(RunConfig, ToyOptions):
    """How a measure's options join those of a scan: as a part that its options are made of."""


def test_a_new_measure_is_one_object_with_its_options_its_columns_and_how_it_fills_them() -> None:
    measures = (columns.GREEDY, TOY)
    row = columns.row_of(ITEM, measures)
    assert table_of([row], results_schema(measures)).to_pylist() == [row]
    assert (row["surprise"], row["hardest_rank"]) == (2.0, 7)
    assert [column.name for column in results_schema(measures)][-3:] == ["surprise", "hardest_rank", "token_evals"]
    assert row["token_evals"] == 4 + 5 + 12 + 10, "the last token is not evaluated; every stage counts"


def test_options_of_a_new_measure_are_flags_yaml_keys_and_part_of_the_runs_identity(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("surprise_floor: 2\ntop_k: 7\n")
    [config] = gather((ToyConfig,), {"surprise_floor": "3.5"}, file)
    assert (config.surprise_floor, config.top_k) == (3.5, 7)
    assert config.identity()["surprise_floor"] == 3.5
    assert (TOY.is_asked_for(config), TOY.is_asked_for(RunConfig())) == (True, False)
    with pytest.raises(ConfigError, match=r"surprise-floor is -1.0; it must be 0 or more"):
        ToyConfig(surprise_floor=-1)


@pytest.mark.parametrize("measure", columns.every_measure(RunConfig()), ids=lambda measure: measure.name)
def test_the_options_of_every_measure_are_options_of_a_scan(measure: Measure) -> None:
    if measure.options is not None:
        assert issubclass(RunConfig, measure.options)
        assert {flag.name for flag in flags_of(measure.options)} <= {flag.name for flag in flags_of(RunConfig)}


@given(
    st.builds(
        Window,
        st.text(),
        st.text(),
        st.sampled_from(Split),
        *[st.integers(0, 2**40)] * 3,
        st.lists(st.integers(0, 2**31 - 1)).map(tuple),
        st.lists(st.integers(0, 2**31 - 1)).map(tuple),
    )
)
def test_a_window_comes_back_from_its_row(window: Window) -> None:
    assert window_of(window_row(window)) == window


def test_measures_are_declared_without_pyarrow() -> None:
    code = "import sys, byrote.scan.measures; assert not {'pyarrow', 'polars', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
