"""Measures own their columns: what a scan's tables hold follows from the measures, and each fills exactly its own."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import byrote
from byrote.errors import ConfigError
from byrote.models.scoring import VerbatimScore
from byrote.options import gather
from byrote.scan import row as columns
from byrote.scan.measures.base import Measure, Measured
from byrote.scan.measures.membership import MembershipScores
from byrote.scan.options import MEASURES, RunConfig
from byrote.scan.row import measures_of, results_schema
from byrote.scan.stages.decode import GreedyResult, SampledAnswers
from byrote.scan.stages.search import NearResult
from byrote.scan.stages.verify import VerifiedMass
from byrote.store.columns import window_of, window_row
from byrote.store.tables import table_of
from byrote.types import Interval, Split, StopReason, Window
from byrote.verdict import Bounds, Estimate, Verdict
from tests.scan.letters import letters
from tests.scan.toy_measure import SURPRISE, SurpriseConfig

CONTRACT = (
    "window_id document split char_start suffix_char_start char_end prefix_ids suffix_ids log_p_verbatim p_verbatim "
    "suffix_ranks greedy_hamming greedy_levenshtein greedy_is_beyond_budget answers answer_hits mass_lower mass_upper "
    "search_lower open_mass eos_mass refuted_mass verdict stop_reason stop_step screen_score was_screened "
    "screen_density token_evals"
)
WINDOW = Window("a.txt@20", "a.txt", Split.CONTROL, 20, 29, 38, (1, 2, 3), (4, 5))
SCORE = VerbatimScore(WINDOW, (-math.inf, -1.5), (0.5, 0.25), (1, 7), -2.0)
NEAR = NearResult(
    Bounds((0.0, 0.5), (0.0, 0.75)), Verdict.EXTRACTABLE, StopReason.FINISHED, 2, 12, 0.5, False, outcome=None,
    policy_bounds=(Bounds((0.0, 0.25), (0.0, 1.0)),),
)  # fmt: skip
ITEM = Measured(
    SCORE,
    None,
    greedy=GreedyResult((4, 6), 1, 1, 5),
    answers=SampledAnswers(2, (0, 1), 3),
    near=NEAR,
    verified=VerifiedMass(0.5, 1.0, 1e-7, 10),
    estimate=Estimate(0.5, 0.1, Interval(0.4, 0.6), 0.6, 10, 100, hits=5, sampled_mass=0.5, base_mass=0.3),
    further={
        "membership": MembershipScores(2.0, 0.1, -3.0, -0.5),
        "unlearning": {
            "exact_match": 0.5,
            "extraction_strength": 0.0,
            "rouge_l": None,
            "longest_common_run": 1,
        },
    },
)
EVERYTHING = RunConfig(
    measures=(*MEASURES, "membership", "unlearning"), sweep=("k=10",), policies=("t=0.7+k=5",), verify=True,
    estimate="all", greedy="full",
)  # fmt: skip


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


@pytest.mark.parametrize(
    "measure", [columns.ANSWERS, columns.VERIFY, columns.ESTIMATE], ids=lambda measure: measure.name
)
def test_a_window_without_such_a_result_has_nulls(measure: Measure) -> None:
    assert measure.fill(Measured(SCORE, None)) == {column.name: None for column in measure.columns}


@pytest.fixture
def surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure of `toy_measure.py`, registered for one test."""
    monkeypatch.setattr(columns, "FURTHER", dict(columns.FURTHER))
    columns.register(SURPRISE)


@pytest.mark.usefixtures("surprise")
def test_a_new_measure_is_one_file() -> None:
    model = letters()
    windows = [
        Window(f"w@{start}", "w", Split.TARGET, start, start + 2, start + 5, (0, start), (1, 2, 3)) for start in (1, 2)
    ]
    config = SurpriseConfig(measures=("verbatim", "surprise"), surprise_floor=2.5, top_k=4)
    table = byrote.scan(model, windows, config).to_polars()
    assert table.columns[-3:] == ["surprise", "hardest_rank", "token_evals"]
    assert (table["surprise"] >= 2.5).all()
    assert (table["hardest_rank"] == table["suffix_ranks"].list.max() - 1).all()


@pytest.mark.usefixtures("surprise")
def test_options_of_a_new_measure_are_flags_yaml_keys_and_part_of_the_runs_identity(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("surprise_floor: 2\ntop_k: 7\nmeasures: surprise\n")
    [config] = gather((SurpriseConfig,), {"surprise_floor": "3.5"}, file)
    assert (config.surprise_floor, config.top_k, config.measures) == (3.5, 7, ("surprise",))
    assert config.identity()["surprise_floor"] == 3.5
    with pytest.raises(ConfigError, match=r"surprise-floor is -1.0; it must be 0 or more"):
        SurpriseConfig(surprise_floor=-1)
    with pytest.raises(ConfigError, match=r"surprise-floor is 1.0, but has no effect; add surprise to --measures"):
        SurpriseConfig(surprise_floor=1).require_use()


def test_a_measure_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose greedy, verbatim, near, membership, unlearning"):
        RunConfig(measures=("surprise",))


def test_every_stage_counts_its_token_evaluations() -> None:
    row = columns.row_of(ITEM, (columns.greedy_measure(RunConfig()),))
    assert row["token_evals"] == 4 + 5 + 3 + 12 + 10, "the last token is not evaluated"


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
    code = "import sys, byrote.scan.row; assert not {'pyarrow', 'polars', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
