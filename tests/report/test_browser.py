"""The page in a real browser: opened from the disk, used with mouse and keys, compared with Python's numbers."""

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from rote.report.build import ReportPaths
from rote.report.html.render import page_data, render_page
from rote.report.rates import interval_grid, split_rows, threshold_grid
from rote.report.strongest import strongest_passages
from rote.report.tables import document_coverage
from rote.report.view import RunView, load_view
from rote.report.words import integer, percent
from rote.stats.population import Category, categories
from rote.stats.queries import queries_needed
from rote.types import Split
from tests.report.synthetic_run import Book, books, prose, write_run

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CATEGORY_NAMES = {
    "verbatim": Category.VERBATIM,
    "unlocked": Category.UNLOCKED,
    "zero": Category.UNLOCKED_FROM_ZERO,
}
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="Chromium is not installed (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


class Opened:
    """A page opened from the disk, with everything it asked for and complained about."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def count(self, name: str) -> int:
        return int(self.page.locator(f"#count-{name}").get_attribute("data-value") or "-1")

    def slide(self, name: str, value: int) -> None:
        self.page.locator(f"#{name}").evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            value,
        )


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    yield made
    made.close()


@pytest.fixture
def opened(context: BrowserContext, report: ReportPaths) -> Opened:
    return Opened(context, report.page)


def render_to(path: Path, view: RunView) -> Path:
    path.write_text(render_page([view], [], None), encoding="utf-8")
    return path


def test_page_opens_from_disk_without_network_or_complaint(opened: Opened, report: ReportPaths) -> None:
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
        possible = int((targets.mass_upper[:, edits] >= tau).sum())
        assert f"at most {integer(possible)} can" in opened.page.locator("#most-target").inner_text()
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
    covered = document_coverage(view.population, view.documents[0], view.threshold)
    assert covered is not None
    assert shaded == round(covered * 2400)
    joined = opened.page.locator("#passages .hint", has_text=f"{integer(shaded)} characters").text_content() or ""
    assert percent(covered) in joined.replace("\u00a0", " ")


def test_clicking_a_passage_opens_its_window(opened: Opened, view: RunView) -> None:
    opened.page.locator("#text").scroll_into_view_if_needed()
    opened.page.locator(".chunk .h8").first.click()
    details = opened.page.locator("#details")
    opened.page.wait_for_selector(".continuation")
    text = details.inner_text()
    assert "Extractable" in text
    for heading in ("Given to the model (prefix)", "Expected (target)", "queries needed", "What the model says"):
        assert heading in text
    prefix = details.locator(".passage.prefix").inner_text()
    target = details.locator(".passage.target").inner_text()
    lamp = next(document for document in view.documents if document.name == "the_lamp.txt")
    assert lamp.text is not None
    row = next(
        row
        for row in view.results.filter(document="the_lamp.txt").iter_rows(named=True)
        if lamp.text[row["suffix_char_start"] : row["char_end"]].split() == target.split()
    )
    assert lamp.text[row["char_start"] : row["suffix_char_start"]].split() == prefix.split()
    kept = details.locator(".continuation").count()
    assert view.continuations is not None
    assert kept == len(view.continuations.filter(window_id=row["window_id"]))


def test_differences_rebuild_target_and_continuation(opened: Opened, view: RunView) -> None:
    """What stays after dropping insertions is the target; after dropping deletions, the continuation."""
    opened.page.keyboard.press("n")
    opened.page.wait_for_selector(".continuation")
    target = opened.page.locator(".passage.target").text_content()
    assert view.continuations is not None
    texts = set(view.continuations["text"].to_list())
    parts = opened.page.evaluate(
        """[...document.querySelectorAll('.continuation .passage')].map((passage) => {
          const kept = (tag) => [...passage.childNodes].filter((node) => node.nodeName !== tag);
          const without = (tag) => kept(tag).map((node) => node.textContent).join('');
          return [without('INS'), without('DEL')];
        })"""
    )
    assert parts
    for original, continuation in parts:
        assert original == target
        assert continuation in texts


def test_queries_needed_are_those_of_the_statistics_room(opened: Opened, view: RunView) -> None:
    opened.page.keyboard.press("n")
    cells = opened.page.locator("#details .queries td.number").all_inner_texts()
    target = opened.page.locator(".passage.target").text_content()
    lamp = next(document for document in view.documents if document.name == "the_lamp.txt")
    assert lamp.text is not None
    rows = view.results.filter(document="the_lamp.txt").iter_rows(named=True)
    row = next(row for row in rows if lamp.text[row["suffix_char_start"] : row["char_end"]] == target)
    for cell, chance in zip(cells, (0.5, 0.9, 0.999), strict=True):
        most = queries_needed(row["mass_lower"][5], chance)
        least = queries_needed(row["mass_upper"][5], chance)
        numbers = [int(word) for word in cell.replace("\u2009", "").split() if word.isdigit()]
        assert numbers == ([int(most)] if most == least else [int(least), int(most)])
        assert math.isfinite(most)


def test_keys_walk_windows_and_passages_and_move_the_sliders(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("j")
    assert "Window 1 of" in page.locator("#details").inner_text()
    page.keyboard.press("j")
    assert "Window 2 of" in page.locator("#details").inner_text()
    page.keyboard.press("k")
    assert "Window 1 of" in page.locator("#details").inner_text()
    page.keyboard.press("[")
    assert page.locator("#edits").input_value() == "4"
    page.keyboard.press("]")
    before = int(page.locator("#tau").input_value())
    page.keyboard.press(".")
    assert int(page.locator("#tau").input_value()) == before + 1
    page.keyboard.press("Escape")
    assert page.locator("#details .empty").count() == 1
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()


def test_search_counts_and_marks_every_hit(opened: Opened, view: RunView) -> None:
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("lamp")
    lamp = next(document for document in view.documents if document.name == "the_lamp.txt")
    assert lamp.text is not None
    total = lamp.text.lower().count("lamp")
    assert page.locator("#search-count").inner_text() == f"1 of {total}"
    page.keyboard.press("Enter")
    assert page.locator("#search-count").inner_text() == f"2 of {total}"
    assert page.locator(".chunk .is-current").inner_text().lower() == "lamp"
    page.keyboard.type("zzz")
    assert page.locator("#search-count").inner_text() == "none"


def test_a_hit_far_down_a_long_text_is_scrolled_into_view(context: BrowserContext, tmp_path: Path) -> None:
    text = prose(7, 90_000) + "\n\nthe quetzal at the end of it all. " + prose(8, 30_000)
    view = load_view(write_run(tmp_path / "run", [Book("long.txt", text)], stride=2000))
    page = Opened(context, render_to(tmp_path / "index.html", view)).page
    page.keyboard.press("/")
    page.keyboard.type("quetzal")
    inside = page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
          const hit = document.querySelector('.is-current').getBoundingClientRect();
          const reader = document.getElementById('reader').getBoundingClientRect();
          done(hit.top >= reader.top && hit.bottom <= reader.bottom);
        })))"""
    )
    assert inside


def test_choosing_another_document_shows_its_text(opened: Opened, view: RunView) -> None:
    opened.page.locator("#document").select_option(label="held_out.txt")
    held_out = next(document for document in view.documents if document.name == "held_out.txt")
    assert held_out.text is not None
    assert opened.page.locator("#reader").text_content() == held_out.text
    assert opened.page.locator(".chunk span:not(.unmeasured)").count() == 0


def test_dark_mode_by_preference_and_by_button(browser: Browser, report: ReportPaths) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with browser.new_context(color_scheme="dark") as context:
        page = Opened(context, report.page).page
        dark = page.evaluate(background)
        page.locator("#theme").click()
        light = page.evaluate(background)
    assert dark == "rgb(20, 22, 26)"
    assert light == "rgb(251, 250, 247)"


def test_paper_takes_under_ten_pages_with_the_strongest_passages(opened: Opened, view: RunView) -> None:
    page = opened.page
    page.emulate_media(media="print")
    assert not page.locator("#text").is_visible()
    assert page.locator("#strongest .strong").count() == 10
    assert page.locator("#strongest").is_visible()
    first = strongest_passages(view)[0]
    shown = page.locator("#strongest .strong").first.text_content() or ""
    assert first.place in shown
    assert "".join(piece.text for piece in first.pieces) in shown
    assert page.locator("#strongest ins").count() >= 10
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) < 10


def test_text_that_no_window_covers_is_hatched_and_in_the_legend(context: BrowserContext, tmp_path: Path) -> None:
    """A window every 900 characters, 425 long: the rest of the text is unknown, not safe."""
    run = write_run(tmp_path / "run", [Book("book.txt", prose(1, 4000))], stride=900)
    view = load_view(run)
    page = Opened(context, render_to(tmp_path / "index.html", view)).page
    page.wait_for_selector(".chunk .unmeasured")
    hatched = page.evaluate(
        "[...document.querySelectorAll('.chunk .unmeasured')].map((span) => span.textContent.length)"
    )
    covered = np.zeros(4000, dtype=bool)
    for start, end in zip(view.population.suffix_char_start, view.population.char_end, strict=True):
        covered[start:end] = True
    assert sum(hatched) == int((~covered).sum())
    assert "not measured" in page.locator("#scale").inner_text()


def test_phone_fits_the_screen_and_opens_details_as_a_sheet(browser: Browser, report: ReportPaths) -> None:
    with browser.new_context(viewport={"width": 375, "height": 700}, is_mobile=True, has_touch=True) as context:
        page = Opened(context, report.page).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        for link in page.locator(".top nav a").all():
            box = link.bounding_box()
            assert box is not None
            assert 0 <= box["x"] < box["x"] + box["width"] <= 375
        page.locator(".chunk .h8").first.tap()
        box = page.locator("#details").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] == pytest.approx(700, abs=2)


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
    path = tmp_path / "index.html"
    path.write_text(render_page(views, [], None), encoding="utf-8")
    opened = Opened(context, path)
    assert len(page_data(views)["texts"]) == 4
    for index, view in enumerate(views):
        opened.page.locator("#run").select_option(str(index))
        targets = view.population.select(~view.population.is_control)
        assert opened.count("target") == int((targets.mass(5) >= 0.001).sum())
