"""The pictures of the README, taken in Chromium from the page of `byrote demo`: `python docs/pictures.py demo/run`.

It prints the numbers that the README says about them.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
from playwright.sync_api import Page, ViewportSize, sync_playwright

FOLDER = Path(__file__).parent / "img"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SCREEN: ViewportSize = {"width": 1280, "height": 980}
SHARPNESS = 1.5


def main(run: Path) -> None:
    row = shown_window(run)
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport=SCREEN, device_scale_factor=SHARPNESS)
        page.goto((run / "report" / "index.html").resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        print(page.locator("h1").inner_text())
        page.screenshot(path=FOLDER / "report-summary.png")
        open_window(page, phrase_of(run, row))
        page.screenshot(path=FOLDER / "report-text.png")
        browser.close()
    mass = row["mass_lower"]
    print(f"{row['document']}: exact {row['p_verbatim']:.2g}, within 1 edit {mass[1]:.3g}, within 5 {mass[5]:.3g}")


def shown_window(run: Path) -> dict[str, Any]:
    """A passage trained on in another wording that one edit makes likely and that is hardly ever exact."""
    rows = pl.read_parquet(run / "results.parquet").filter(pl.col("document").str.starts_with("edition"))
    one_edit = pl.col("mass_lower").list.get(1)
    return rows.filter(pl.col("p_verbatim") < 1e-3).sort(one_edit, descending=True).row(0, named=True)


def phrase_of(run: Path, row: dict[str, Any]) -> str:
    texts = pl.read_parquet(run / "texts.parquet")
    text: str = texts.filter(pl.col("name") == row["document"])["text"].item()
    return text[row["suffix_char_start"] + 20 : row["suffix_char_start"] + 90].replace("\n", " ")


def open_window(page: Page, phrase: str) -> None:
    """The passage that holds the phrase, opened beside the text."""
    page.locator("#search").fill(phrase)
    page.locator(".chunk .is-current").first.click()
    page.wait_for_selector(".continuation")
    page.locator("#search").fill("")
    page.locator(".chunk .is-target").first.evaluate("target => target.scrollIntoView({block: 'center'})")
    page.locator("#search").blur()
    page.locator(".reader-grid").evaluate("grid => grid.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
