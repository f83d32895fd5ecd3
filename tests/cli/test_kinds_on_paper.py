"""A page that holds runs of every kind, as it is printed."""

import re
from pathlib import Path

from playwright.sync_api import Browser

from byrote.run_kinds import write_report
from tests.browsers import NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM


def test_runs_of_every_kind_take_under_ten_pages(every_kind: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    runs = tuple(every_kind.values())
    written = write_report(runs, tmp_path / "page")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(written.page.as_uri())
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) < 10
        page.emulate_media(media="print")
        assert page.locator(".run-ids").inner_text().count("run ") >= len(runs)
