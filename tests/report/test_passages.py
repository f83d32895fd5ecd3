"""Long passages in a report: table, figure and texts say what the stored bounds and answers say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from byrote.report.analysis.passages import (
    BEST_STARTS,
    best_starts,
    passage_cells,
    passage_drawings,
    passage_rows,
    passages_found,
    passages_of,
)
from byrote.report.view import RunView, load_view
from byrote.types import Split

LENGTHS = [50, 100, 200]


@pytest.fixture
def long(run_folder: Path) -> RunView:
    """Bounds that fall with the length, from each window's own; answers that differ from the text by a word."""
    view = load_view(run_folder)
    population = view.population
    mass = population.mass(population.edit_budget)
    lower = np.stack([mass, mass**2, mass**4], 1)
    expected = 50 * (mass + mass**2 + mass**3 + mass**4)
    results = view.results.with_columns(
        pl.Series("passage_lower", lower.tolist()),
        pl.Series("passage_upper", np.minimum(1, 2 * lower + 0.1).tolist()),
        pl.Series("passage_expected_lower", expected),
        pl.Series("passage_expected_upper", np.full(len(mass), 200.0)),
        pl.Series("passage_ids", [[1] * 100 if one > 0.1 else None for one in mass], dtype=pl.List(pl.Int32)),
        pl.Series("passage_log_p", [-0.5 if one > 0.1 else None for one in mass], dtype=pl.Float64),
        pl.Series("passage_text", ["one two four" if one > 0.1 else None for one in mass], dtype=pl.String),
        pl.Series("passage_target", ["one two three" if one > 0.1 else None for one in mass], dtype=pl.String),
    )
    manifest = {**view.manifest, "config": {**view.config, "passage": LENGTHS}}
    return replace(view, manifest=manifest, results=results)


def test_the_best_starts_are_targets_of_falling_expected_length_that_do_not_overlap(long: RunView) -> None:
    found, population = passages_of(long), long.population
    assert found is not None
    rows = best_starts(long, found)
    assert 1 < len(rows) <= BEST_STARTS
    assert not population.is_control[rows].any()
    expected = found.expected_lower[rows]
    assert list(expected) == sorted(expected, reverse=True)
    assert expected[0] == found.expected_lower[~population.is_control].max()
    spans = [(population.document[row], population.char_start[row], population.suffix_char_start[row]) for row in rows]
    for place, (document, start, _) in enumerate(spans):
        for row, (other, first, suffix) in zip(rows[:place], spans, strict=False):
            assert document != other or abs(start - first) >= population.char_end[row] - suffix


def test_the_table_has_a_row_for_each_start_and_a_sentence_for_the_longest_passage(long: RunView) -> None:
    found = passages_of(long)
    assert found is not None
    (cells,) = passage_cells(long)
    assert cells.heads == ("from character", "50 tokens", "100 tokens", "200 tokens", "expected")
    assert len(cells.rows) == len(best_starts(long, found))
    best = int(np.argmax(np.where(long.population.is_control, -1, found.lower[:, -1])))
    assert cells.note.startswith(f"Asked once with the 50 tokens before character {cells.rows[0][0].split(', ')[1]}")
    assert f"for 200 tokens with probability {found.lower[best, -1]:.3g} at least" in cells.note
    never = replace(long, results=long.results.with_columns(pl.lit([0.0] * 3).alias("passage_lower")))
    (empty,) = passage_cells(never)
    assert (empty.rows, empty.note[:40]) == ((), "No passage of these lengths is certified")


def test_the_figure_draws_shares_of_windows_at_the_threshold_by_length(long: RunView) -> None:
    (drawing,) = passage_drawings(long)
    _, shares = drawing.figure.axes[:2]
    found, population = passages_of(long), long.population
    assert found is not None
    targets = next(line for line in shares.get_lines() if line.get_label() == "all target windows")
    rows = ~population.is_control & population.is_rated
    assert targets.get_ydata() == pytest.approx((found.lower[rows] >= long.threshold).mean(0))


def test_rows_hold_every_certified_window_at_every_length(long: RunView) -> None:
    rows = passage_rows([long])
    population = long.population
    certified = population.mass(population.edit_budget) >= long.threshold
    assert len(rows) == 3 * certified.sum()
    assert [row["length"] for row in rows[:3]] == LENGTHS
    assert {row["split"] for row in rows} <= set(Split)


def test_answers_stand_beside_the_text_with_their_differences(long: RunView) -> None:
    first = passages_found(long)[0]
    assert first.pieces == (("one two ", "same"), ("three", "target"), ("four", "model"))
    assert first.numbers == "100 tokens nearly, this very answer with probability 0.607"
    assert long.documents[0].text is not None
    assert first.prefix in long.documents[0].text


def test_lengths_of_a_text_run_are_characters_and_another_typesetting_is_no_difference(long: RunView) -> None:
    chars = {"unit": "text", "prefix_chars": 200, "suffix_chars": 50}
    typeset = pl.col("passage_target").str.replace(" two", "\ntwo").alias("passage_text")
    manifest = {**long.manifest, "config": {**long.config, **chars}}
    view = replace(long, manifest=manifest, results=long.results.with_columns(typeset))
    (cells,) = passage_cells(view)
    assert cells.heads[1:4] == ("50 characters", "100 characters", "200 characters")
    assert cells.note.startswith("Asked once with up to 200 characters before character")
    assert "follows the text for up to 200 characters" in cells.note
    assert {(row["unit"], row["length"]) for row in passage_rows([view])} == {("characters", one) for one in LENGTHS}
    assert passages_found(view)[0].pieces == (("one two three", "same"),)
    assert passages_found(view)[0].numbers.startswith("13 characters word for word")


def test_without_passages_there_is_nothing(view: RunView) -> None:
    assert passage_cells(view) == passage_drawings(view) == passage_rows([view]) == []
    assert passages_found(view) == ()
