"""Runs side by side: aligned by place and tokens, whatever their order, and compared window by window."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from byrote.report.analysis.comparison import (
    RunComparison,
    compare_runs,
    comparison_sentences,
    paired_differences,
    shared_windows,
)
from byrote.report.page import write_page
from byrote.report.summary import headline
from byrote.report.view import RunView, load_view
from byrote.report.words import integer, percent
from byrote.scan.report import read, scan_content
from byrote.stats.population import population_of
from tests.report.synthetic_run import books, write_run


def pair(tmp_path: Path) -> tuple[RunView, RunView]:
    small = load_view(write_run(tmp_path / "small", books(3000), seed=1, stride=50, model="small"))
    large = load_view(write_run(tmp_path / "large", books(3000), seed=2, stride=50, model="large"))
    return small, large


def sentences_of(comparison: RunComparison) -> list[str]:
    return comparison_sentences(comparison, paired_differences(comparison, 0.001), 0.001)


def test_order_of_rows_and_width_of_ids_do_not_matter(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    shuffled = large.results.sample(fraction=1, shuffle=True, seed=3).with_columns(
        pl.col("prefix_ids", "suffix_ids").cast(pl.List(pl.Int32))
    )
    aligned = compare_runs([small, replace(large, results=shuffled)]).aligned
    assert aligned is not None
    assert aligned[0].char_start.tolist() == aligned[1].char_start.tolist()
    by_id = dict(zip(large.results["window_id"], large.results["p_verbatim"], strict=True))
    assert aligned[1].p_verbatim is not None
    assert aligned[1].p_verbatim.tolist() == [by_id[name] for name in aligned[1].window_id]


def test_fixed_set_and_promotion_are_those_of_counting(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    sentences = sentences_of(compare_runs([small, large]))
    first = {row["window_id"]: row for row in small.results.iter_rows(named=True)}
    second = {row["window_id"]: row for row in large.results.iter_rows(named=True)}
    targets = [name for name, row in first.items() if row["split"] == "target"]
    both = sum(first[name]["mass_lower"][5] >= 0.001 and second[name]["mass_lower"][5] >= 0.001 for name in targets)
    near = [name for name in targets if first[name]["mass_lower"][5] >= 0.001 > first[name]["p_verbatim"]]
    moved = sum(second[name]["p_verbatim"] >= 0.001 for name in near)
    expected = f"Of the {integer(len(targets))} target windows among them, {integer(both)} are extractable from every"
    assert expected in sentences[0]
    assert (
        f"Of {integer(len(near))} target windows extractable only nearly from small, {integer(moved)}" in sentences[2]
    )


def test_difference_of_target_rates_has_the_right_sign_and_an_interval(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    comparison = compare_runs([small, large])
    assert comparison.aligned is not None
    rates = [float(np.mean(p.mass(5)[~p.is_control] >= 0.001)) for p in comparison.aligned]
    told = sentences_of(comparison)[1]
    assert f"the difference is {100 * (rates[1] - rates[0]):+.1f} percentage points, 95 % interval" in told


def told_at(tmp_path: Path, *thresholds: float) -> list[Path]:
    """The same model on the same windows, once for every τ."""
    return [
        write_run(tmp_path / f"at-{tau:g}", books(3000)[:1], seed=1, stride=50, model="small", threshold=tau)
        for tau in thresholds
    ]


def test_runs_of_different_thresholds_are_told_at_the_largest(tmp_path: Path) -> None:
    runs = told_at(tmp_path, 0.001, 0.2)
    content = scan_content([load_view(path) for path in runs])
    share = percent(float(np.mean(load_view(tmp_path / "at-0.2").population.mass(5) >= 0.2)))
    assert f"{share} from small (at-0.001) and {share} from small (at-0.2)." in content.headline
    assert {own["threshold"] for own in content.numbers.values()} == {0.2}
    assert "the difference is +0.0 percentage points" in content.sentences[1]
    (notice,) = content.notices
    assert "not measured alike: threshold 0.001 (small (at-0.001)), 0.2 (small (at-0.2))" in notice
    assert notice.endswith("All are told at τ = 0.2, the largest.")
    page = write_page([read(runs)], tmp_path / "report").page.read_text(encoding="utf-8")
    assert "All are told at τ = 0.2, the largest." in page
    rates = pl.read_csv(tmp_path / "report" / "tables" / "rates.csv")
    assert rates["threshold"].unique().to_list() == [0.2]


def test_runs_of_different_edit_budgets_are_compared_within_the_smaller(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    shorter = large.results.with_columns(
        pl.col("mass_lower").list.head(3), pl.col("mass_upper").list.head(3), pl.col("search_lower").list.head(3)
    )
    few = replace(large, results=shorter, population=population_of(shorter))
    comparison = compare_runs([small, few])
    targets = ~small.population.is_control
    shares = [percent(float(np.mean(view.population.mass(2)[targets] >= 0.001))) for view in (small, large)]
    told = f"Target windows extractable within 2 edits: {shares[0]} from small, {shares[1]} from large;"
    assert told in sentences_of(comparison)[1]
    assert headline([small, few]).endswith(f"{shares[0]} from small and {shares[1]} from large.")
    both = (small.population.mass(2) >= 0.001) & (large.population.mass(2) >= 0.001) & targets
    found = {shared.members: shared.windows for shared in shared_windows(comparison, 0.001)}
    assert found[True, True] == both.sum()


def test_greedy_answers_are_exact_in_every_table(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    rates, differences, *_ = scan_content([small, large]).tables
    shares = {row[1]: row[3] for row in rates.rows if row[0] == "small, target"}
    exact = percent(float(np.mean(small.population.greedy_distance[~small.population.is_control] == 0)))
    assert shares["greedy, exact"] == exact
    assert [row[2] for row in differences.rows if row[1] == "greedy, exact"] == [exact]


def test_another_tokenizer_makes_other_windows(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    changed = large.results.with_columns(pl.col("suffix_ids").list.eval(pl.element() + 1))
    comparison = compare_runs([small, replace(large, results=changed)])
    assert comparison.aligned is None
    assert f"0 of {integer(len(small.results))} are the same" in (comparison.reason or "")
    assert sentences_of(comparison) == [comparison.reason]
