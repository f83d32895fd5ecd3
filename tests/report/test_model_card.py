"""The model-card block: complete, well-formed Markdown whatever the names."""

from dataclasses import replace
from pathlib import Path

from byrote.report.analysis.rates import Criterion, rate_for, rates_by_criterion
from byrote.report.summary import citation, model_card
from byrote.report.templates import markdown_safe
from byrote.report.view import RunView, with_threshold
from byrote.report.words import percent
from byrote.scan.options import RunConfig
from byrote.types import Split


def test_card_has_rates_intervals_settings_and_citation(view: RunView) -> None:
    card = model_card(view)
    near = rate_for(rates_by_criterion(view.population, 0.001), Criterion.NEAR, split=Split.TARGET, edits=5)
    assert near is not None
    assert percent(near.rate.value) in card
    assert "50 + 50-token windows of 3 target and 1 control documents" in card
    assert "top-k 40, temperature 1" in card
    assert citation(view) in card


def test_every_row_of_the_table_has_five_cells(view: RunView) -> None:
    rows = [line for line in model_card(view).splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {row.count("|") for row in rows} == {6}


def test_card_says_how_many_screened_windows_a_search_would_have_certified(view: RunView) -> None:
    audit = {"searched_all_the_same": 600, "certified_in_sample": 1, "not_searched": 12_400}
    audit |= {"would_be_certified_expected": 4.2, "would_be_certified_at_most": 97}
    card = model_card(replace(view, manifest={**view.manifest, "totals": {"screen": audit}}))
    assert "At most 97 of the 12\u2009400 not searched would have been certified by a search" in card
    assert "To check the screen" not in model_card(view)


def test_card_says_where_a_threshold_comes_from_that_is_not_the_runs(view: RunView) -> None:
    assert "after the scan" not in model_card(view)
    card = model_card(with_threshold(view, "0.25"))
    assert "near-verbatim, ε ≤ 5, p ≥ 0.25" in card
    assert "τ was chosen as 0.25 after the scan." in card


def test_card_has_every_option_that_decides_numbers(view: RunView) -> None:
    (line,) = (line for line in model_card(view).splitlines() if line.startswith("Options: "))
    told = line.removeprefix("Options: ").removesuffix(".").split(", ")
    assert [words.split(" ")[0].replace("-", "_") for words in told] == sorted(RunConfig().identity())
    assert "threshold 0.001" in told
    assert "keep-shared no" in told


def test_citation_changes_with_the_manifest(view: RunView) -> None:
    other = replace(view, manifest={**view.manifest, "seed": 1})
    assert citation(other) != citation(view)


def test_names_cannot_break_code_spans_or_cells(view: RunView) -> None:
    assert markdown_safe("a`b|c\nd") == "a'b¦c d"
    hostile = replace(view, path=Path("x|y`z"), manifest={**view.manifest, "model": {"id": "m|`odd`"}})
    rows = [line for line in model_card(hostile).splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {6}


def test_what_was_not_measured_has_no_row(view: RunView) -> None:
    bare = replace(view, population=replace(view.population, greedy_distance=None, mass_lower=None))
    card = model_card(bare)
    assert "lower bounds" not in card
    assert "verbatim, p ≥ 0.001" in card
    assert "greedy, exact" not in card
    assert "near-verbatim, ε" not in card
