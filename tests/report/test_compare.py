"""Runs side by side: aligned by place and tokens, whatever their order, and compared window by window."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from rote.report.comparison import compare_runs, comparison_sentences, difference_sentence
from rote.report.view import RunView, load_view
from rote.report.words import integer
from tests.report.synthetic_run import books, write_run


def pair(tmp_path: Path) -> tuple[RunView, RunView]:
    small = load_view(write_run(tmp_path / "small", books(3000), seed=1, stride=50, model="small"))
    large = load_view(write_run(tmp_path / "large", books(3000), seed=2, stride=50, model="large"))
    return small, large


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
    sentences = comparison_sentences(compare_runs([small, large]), 0.001)
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
    told = difference_sentence(("small", comparison.aligned[0]), ("large", comparison.aligned[1]), 0.001)
    assert f"the difference is {100 * (rates[1] - rates[0]):+.1f} percentage points, 95 % interval" in told


def test_another_tokenizer_makes_other_windows(tmp_path: Path) -> None:
    small, large = pair(tmp_path)
    changed = large.results.with_columns(pl.col("suffix_ids").list.eval(pl.element() + 1))
    comparison = compare_runs([small, replace(large, results=changed)])
    assert comparison.aligned is None
    assert f"0 of {integer(len(small.results))} are the same" in (comparison.reason or "")
    assert comparison_sentences(comparison, 0.001) == [comparison.reason]
