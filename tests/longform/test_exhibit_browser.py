"""The exhibit in a real browser: it asks the network for nothing, fits a phone, and prints to about a dozen pages."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from byrote.lab.texts import write_passages
from byrote.longform.report import write_exhibit
from byrote.longform.run import run_audit
from tests.browsers import NEEDS_CHROMIUM
from tests.longform.audits import CountingClock, InProcess, make_run
from tests.loopback.brains import KnowsByHeart

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of 10,000 words, reproduced but for a wrong word in every hundred and three stretches."""
    words = "\n\n".join(write_passages(3, 115, least_words=80)).split(" ")
    said = ["wrong" if n > 200 and n % 97 == 0 else word for n, word in enumerate(words)]
    for start in (2000, 5000, 8000):
        said[start : start + 300] = ["nothing"] * 40
    run = make_run(" ".join(words), tmp_path_factory.mktemp("audit") / "run", options={"max_turns": 400})
    run_audit(run, InProcess(KnowsByHeart(" ".join(said))), sleep=CountingClock().sleep)
    return write_exhibit(run.out).page


def test_nothing_is_asked_for_and_nothing_complained_about(browser: Browser, page_path: Path) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(page_path.as_uri())
        assert [url for url in asked if not url.startswith("data:")] == [page_path.as_uri()]
        assert complaints == []
        page.click(".passage-list a >> nth=1")
        assert page.evaluate("location.hash") == "#passage-2"


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_as_wide_as_the_screen(browser: Browser, page_path: Path, width: int) -> None:
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        page = context.new_page()
        page.goto(page_path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        columns = page.evaluate("getComputedStyle(document.querySelector('.row.differs')).gridTemplateColumns")
        assert len(columns.split(" ")) == (2 if width > 640 else 1)


def test_it_prints_to_about_a_dozen_pages(browser: Browser, page_path: Path) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(page_path.as_uri())
        content = page.pdf(format="A4", print_background=True)
    assert 5 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 14


def test_every_fold_is_open_on_paper(browser: Browser, page_path: Path) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(page_path.as_uri())
        rows = page.locator(".fold:not(.screen-only) .row")
        assert rows.count() > 0
        assert not rows.first.is_visible()
        page.emulate_media(media="print")
        printed = page.locator("details:not(.options)").evaluate_all(
            "all => all.filter(one => one.checkVisibility()).map(one => one.lastElementChild.checkVisibility())"
        )
        assert printed
        assert all(printed)
