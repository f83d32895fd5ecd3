"""The page in the dark, on paper and on a phone."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext

from byrote.report.content import Written
from byrote.report.page import write_page
from byrote.report.reader import strongest_passages
from byrote.report.view import RunView, load_view
from byrote.scan.report import read
from tests.browsers import NEEDS_CHROMIUM, Opened
from tests.report.pages import render_to
from tests.report.synthetic_run import Book, books, prose, write_run

pytestmark = NEEDS_CHROMIUM


def test_dark_mode_by_preference_and_by_button(browser: Browser, report: Written) -> None:
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
    assert "".join(text for text, _ in first.pieces) in shown
    assert page.locator("#strongest ins").count() >= 10
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) < 10


def test_on_paper_no_heading_is_larger_than_what_stands_above_it(opened: Opened) -> None:
    opened.page.emulate_media(media="print")
    h1, h2, h3, th, td = (
        opened.page.evaluate(f"parseFloat(getComputedStyle(document.querySelector('{place}')).fontSize)")
        for place in ("h1", "#documents h2", "h3.table-title", "#documents th", "#documents td")
    )
    assert h1 > h2 > h3 > td >= th


def test_three_models_side_by_side_take_under_ten_pages(context: BrowserContext, tmp_path: Path) -> None:
    names = ("small", "middle", "large")
    runs = [
        write_run(tmp_path / name, books(2400), stride=120, seed=seed, model=name) for seed, name in enumerate(names)
    ]
    page = Opened(context, write_page([read(runs)], tmp_path / "report").page).page
    assert page.locator("#compare").is_visible()
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


def test_phone_fits_the_screen_and_opens_details_as_a_sheet(browser: Browser, report: Written) -> None:
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
