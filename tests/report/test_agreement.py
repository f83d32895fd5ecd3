"""Every place that tells a run's rates tells the same ones: headline, page, terminal, model card, gate, hub, logger."""

import html
import json
import re
from pathlib import Path

import pytest

from byrote.integrations.hub import eval_results
from byrote.integrations.loggers import numbers_of
from byrote.report.analysis.rates import HEADLINE_CRITERIA, Criterion, split_rows
from byrote.report.content import contents_json
from byrote.report.gate import judge, parse_rule
from byrote.report.summary import headline, model_card
from byrote.report.terminal import terminal_text
from byrote.report.view import RunView, load_view
from byrote.report.words import interval_words, percent
from byrote.scan.report import scan_content
from byrote.types import Split
from tests.report.pages import page_of
from tests.report.synthetic_run import books, write_run


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    return load_view(write_run(tmp_path_factory.mktemp("agreement") / "run", books(4000), stride=80))


def counted(view: RunView, criterion: Criterion, split: Split) -> int:
    """From the rows, without the code that makes rates."""
    rows = view.results.filter(split_rows(view.population, split))
    columns = {
        Criterion.GREEDY: (rows["greedy_levenshtein"] == 0).sum(),
        Criterion.VERBATIM: (rows["p_verbatim"] >= view.threshold).sum(),
        Criterion.NEAR: (rows["mass_lower"].list.last() >= view.threshold).sum(),
    }
    return int(columns[criterion])


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize("criterion", HEADLINE_CRITERIA)
def test_every_place_tells_the_same_rate(view: RunView, criterion: Criterion, split: Split, tmp_path: Path) -> None:
    windows = int(split_rows(view.population, split).sum())
    hits = counted(view, criterion, split)
    entry = view.rate(criterion, split)
    assert entry is not None
    share, interval = percent(hits / windows), interval_words(entry.rate.interval)
    content = scan_content([view])
    card = page_of(view).split(f'<article class="card {criterion}">')[1].split("</article>")[0]
    bar = html.unescape(card.split(f'<div class="bar {split}">')[1].replace("\u00a0", " "))
    assert f"<strong>{share}</strong>" in bar
    assert f"{share}, 95 %: {interval}" in bar
    assert f"<span>{hits} of {windows}" in bar
    assert f"| {share} ({hits}/{windows}) | {interval} |" in model_card(view)
    (table,) = [table for table in content.tables if table.name == "rates"]
    row = next(row for row in table.rows if row[0].startswith(criterion.value))
    assert row[table.heads.index(split)] == f"{share} ({interval})"
    (told,) = json.loads(contents_json([content]))
    number = next(
        one
        for one in told["numbers"][view.label]["rates"]
        if (one["criterion"], one["split"]) == (criterion, split)
        and one["edits"] == (None if criterion is Criterion.VERBATIM else 0 if criterion is Criterion.GREEDY else 5)
    )
    assert (number["hits"], number["windows"]) == (hits, windows)
    assert numbers_of(view)[f"{split}/{criterion}"] == pytest.approx(hits / windows)
    name = "control_" * (split is Split.CONTROL) + criterion.value
    value = next(one["value"] for one in eval_results(view, "org/name") if one["dataset"]["task_id"] == name)
    assert value == pytest.approx(hits / windows)
    measured = "certified" if criterion is Criterion.NEAR else criterion.value
    (finding,) = judge(view, [parse_rule(f"split:{split} {measured}=1")]).findings
    assert (finding.low, finding.high) == pytest.approx((hits / windows, hits / windows))


def test_the_headline_stands_on_the_page_and_has_the_numbers_of_the_cards(view: RunView) -> None:
    near = view.rate(Criterion.NEAR, Split.TARGET)
    assert near is not None
    words = headline([view])
    assert percent(near.rate.value) in words
    assert interval_words(near.rate.interval) in words
    shown = re.sub(r"<[^>]+>|\s+|&nbsp;|\u00a0|\u202f", " ", page_of(view))
    assert " ".join(words.split()) in " ".join(shown.split())
    assert terminal_text(scan_content([view]).headline).plain == terminal_text(words).plain
