"""Reading the page in a real browser: windows, continuations, keys and search."""

import math
from pathlib import Path

from playwright.sync_api import BrowserContext

from byrote.report.view import RunView, load_view
from byrote.stats.curves import queries_needed
from tests.browsers import NEEDS_CHROMIUM, Opened
from tests.report.pages import render_to
from tests.report.synthetic_run import Book, prose, write_run

pytestmark = NEEDS_CHROMIUM


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
