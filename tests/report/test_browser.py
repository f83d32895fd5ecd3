"""The page in a real browser: it opens from the disk, counts as Python counts, and shows odd runs as they are."""

from pathlib import Path

import numpy as np
from playwright.sync_api import BrowserContext

from byrote.report.analysis.rates import interval_grid, split_rows, threshold_grid
from byrote.report.content import Written
from byrote.report.reader import page_data
from byrote.report.tables import document_rates
from byrote.report.view import RunView, load_view
from byrote.report.words import integer, percent
from byrote.stats.population import Category, categories
from byrote.types import Split
from tests.browsers import NEEDS_CHROMIUM, Opened
from tests.report.pages import render_to
from tests.report.synthetic_run import Book, books, prose, write_run

pytestmark = NEEDS_CHROMIUM


CATEGORY_NAMES = {
    "verbatim": Category.VERBATIM,
    "unlocked": Category.UNLOCKED,
    "zero": Category.UNLOCKED_FROM_ZERO,
}


def test_page_opens_from_disk_without_network_or_complaint(opened: Opened, report: Written) -> None:
    opened.page.mouse.wheel(0, 3000)
    opened.page.keyboard.press("n")
    opened.page.wait_for_selector(".continuation")
    local = {report.page.as_uri()}
    assert {url for url in opened.requests if not url.startswith(("data:", "blob:"))} == local
    assert opened.complaints == []


def test_sliders_count_exactly_what_python_counts(opened: Opened, view: RunView) -> None:
    thresholds = threshold_grid(view.threshold)
    targets = view.population.select(~view.population.is_control)
    controls = view.population.select(view.population.is_control)
    for edits, index in [(5, thresholds.index(0.001)), (0, thresholds.index(0.001)), (3, 4), (5, 0), (2, 58), (5, 60)]:
        opened.slide("edits", edits)
        opened.slide("tau", index)
        tau = thresholds[index]
        assert opened.count("target") == int((targets.mass(edits) >= tau).sum())
        assert opened.count("control") == int((controls.mass(edits) >= tau).sum())
        assert targets.mass_upper is not None
        ruled_out = int((targets.mass_upper[:, edits] < tau).sum())
        assert f"; {integer(ruled_out)} ruled out" in opened.page.locator("#ruled-out-target").inner_text()
        category = categories(targets.verbatim(), targets.mass(edits), tau, is_impossible=targets.is_impossible())
        for name, kind in CATEGORY_NAMES.items():
            assert opened.count(name) == int((category == kind).sum())


def test_shared_controls_are_in_no_count(context: BrowserContext, tmp_path: Path) -> None:
    view = load_view(write_run(tmp_path / "run", books(3000), stride=40, shared_every=3))
    opened = Opened(context, render_to(tmp_path / "index.html", view))
    rated = view.population.select(split_rows(view.population, Split.CONTROL))
    assert 0 < len(rated) < int(view.population.is_control.sum())
    assert opened.page.locator("#windows-control").inner_text() == integer(len(rated))
    opened.slide("tau", 0)
    assert opened.count("control") == int((rated.mass(5) >= threshold_grid(view.threshold)[0]).sum())
    assert "share their passage with target texts" in opened.page.locator("body").inner_text()


def test_rates_and_intervals_beside_the_counts_are_pythons(opened: Opened, view: RunView) -> None:
    thresholds = threshold_grid(view.threshold)
    index = thresholds.index(0.01)
    opened.slide("edits", 4)
    opened.slide("tau", index)
    low, high = interval_grid(view.population, thresholds)[0, 4, index]
    targets = view.population.select(~view.population.is_control)
    share = float(np.mean(targets.mass(4) >= 0.01))
    expected = f" ({percent(share)}; 95 % interval {percent(low)} to {percent(high)})"
    shown = opened.page.locator("#rate-target").inner_text().replace("\u00a0", " ")
    assert shown.strip() == expected.strip()


def test_shading_follows_the_sliders(opened: Opened, view: RunView) -> None:
    spans = "[...document.querySelectorAll('.chunk span:not(.unmeasured)')]"
    shaded = f"{spans}.map((span) => span.className + span.textContent).join('|')"
    before = opened.page.evaluate(shaded)
    assert "h8" in before
    opened.slide("tau", len(threshold_grid()) - 1)
    assert opened.page.evaluate(shaded) == ""
    opened.slide("tau", 0)
    assert len(opened.page.evaluate(shaded)) > len(before)


def test_shaded_characters_of_a_document_are_those_python_covers(context: BrowserContext, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [books(2400)[0]], stride=30)
    view = load_view(run)
    opened = Opened(context, render_to(tmp_path / "index.html", view))
    shaded = opened.page.evaluate(
        "[...document.querySelectorAll('.chunk span[class^=h]')].map((span) => span.textContent).join('').length"
    )
    covered = document_rates(view)[0].covered
    assert covered is not None
    assert shaded == round(covered * 2400)
    joined = opened.page.locator("#passages .hint", has_text=f"{integer(shaded)} characters").text_content() or ""
    assert percent(covered) in joined.replace("\u00a0", " ")


def test_markup_in_text_names_and_model_is_shown_not_run(context: BrowserContext, tmp_path: Path) -> None:
    hostile = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'></script>"
    book = Book(f"{hostile}.txt", hostile + " " + prose(1, 1500))
    run = write_run(tmp_path / "run", [book], model=hostile, stride=50)
    opened = Opened(context, render_to(tmp_path / "index.html", load_view(run)))
    opened.page.keyboard.press("j")
    assert opened.page.evaluate("window.hacked") is None
    assert (opened.page.locator("#reader").text_content() or "").startswith(hostile)
    assert hostile in opened.page.locator("h1").inner_text()
    assert opened.page.locator("#reader img").count() == 0
    assert opened.complaints == []


def test_astral_combining_and_right_to_left_text_keeps_its_windows(context: BrowserContext, tmp_path: Path) -> None:
    text = ("🦊🦊 e\u0301 السلام عليكم ورحمة الله 👩‍👩‍👧 " * 30)[:1400] + "\n" + "x" * 3000
    view = load_view(write_run(tmp_path / "run", [Book("odd.txt", text)], stride=40))
    opened = Opened(context, render_to(tmp_path / "index.html", view))
    page = opened.page
    assert page.locator("#reader").text_content() == text
    for _ in range(3):
        page.keyboard.press("j")
    row = view.results.row(2, named=True)
    assert page.locator(".passage.target").text_content() == text[row["suffix_char_start"] : row["char_end"]]
    assert page.locator(".passage.prefix").text_content() == text[row["char_start"] : row["suffix_char_start"]]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_texts_the_page_says_so_and_lists_windows(context: BrowserContext, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", books(3000)[:1], stride=100, with_texts=False)
    opened = Opened(context, render_to(tmp_path / "index.html", load_view(run)))
    assert "not available in the run" in opened.page.locator("#reader").inner_text()
    opened.page.locator("#reader button").first.click()
    assert "Extractable" in opened.page.locator("#details").inner_text()
    assert opened.complaints == []


def test_a_sampled_estimate_is_told_apart_from_the_bounds(context: BrowserContext, tmp_path: Path) -> None:
    interval = {"mass_low": 0.2, "mass_high": 0.3, "mass_limit": 0.29, "mass_samples": 400}
    drawn = {"mass_hits": 25, "mass_sampled": 1.0, "mass_base": 0.0, "sampled_verdict": "sampled_extractable"}
    estimate = {"mass_estimate": 0.25, "mass_standard_error": 0.025, **interval, **drawn}
    run = write_run(tmp_path / "run", books(1500)[:1], stride=200, estimate=estimate)
    opened = Opened(context, render_to(tmp_path / "index.html", load_view(run)))
    opened.page.keyboard.press("j")
    told = opened.page.locator("#details").inner_text()
    assert "Sampled estimate 0.25, 95 % interval 0.2 to 0.3." in told


def test_many_short_documents_are_read_as_one_text(context: BrowserContext, tmp_path: Path) -> None:
    short = [Book(f"note-{index}.txt", f"🦊 {prose(index, 600)}", copies=index) for index in range(6)]
    view = load_view(write_run(tmp_path / "run", short, stride=40))
    opened = Opened(context, render_to(tmp_path / "index.html", view))
    page = opened.page
    assert page.locator("#document").input_value() == "0"
    headings = page.locator(".document-heading").all_text_contents()
    assert headings[0] == "note-5.txt · 5 copies in training"
    assert len(headings) == 6
    texts = {document.name: document.text for document in view.documents}
    for row in (0, 7, len(view.population) - 1):
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Escape")
        for _ in range(row + 1):
            page.keyboard.press("j")
        found = view.results.row(row, named=True)
        text = texts[found["document"]]
        assert text is not None
        assert page.locator(".passage.target").text_content() == text[found["suffix_char_start"] : found["char_end"]]
        assert found["document"] in page.locator("#details").inner_text()
    page.locator("button[data-document]").first.click()
    assert page.locator(".document-heading").count() == 0
    assert opened.complaints == []


def test_several_runs_can_be_switched_between(context: BrowserContext, tmp_path: Path) -> None:
    views = [
        load_view(write_run(tmp_path / name, books(3000), seed=seed, stride=100, model=name))
        for seed, name in enumerate(["small", "large"])
    ]
    opened = Opened(context, render_to(tmp_path / "index.html", *views))
    assert len(page_data(views)["texts"]) == 4
    for index, view in enumerate(views):
        opened.page.locator("#run").select_option(str(index))
        targets = view.population.select(~view.population.is_control)
        assert opened.count("target") == int((targets.mass(5) >= 0.001).sum())
