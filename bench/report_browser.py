"""How the report page behaves with a whole book: size, time until it can be used, and slider response in Chromium.

    python bench/report_browser.py [--characters 520000] [--stride 25] [--out bench/results/report_browser.json]

A report, not an assertion: the numbers depend on the machine, so they are kept beside it.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, sync_playwright  # noqa: E402
from tests.report.synthetic_run import Book, prose, write_run  # noqa: E402

from byrote.report.page import write_page  # noqa: E402
from byrote.scan.report import read  # noqa: E402

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OPENINGS = 5
MOVES = 40

SLIDER_SCRIPT = """async ([name, values]) => {
  const slider = document.getElementById(name);
  const times = [];
  for (const value of values) {
    const begin = performance.now();
    slider.value = value;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    const handled = performance.now() - begin;
    // Two frames: the first runs the deferred drawing, the second starts after it was painted.
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    times.push([handled, performance.now() - begin]);
  }
  return times;
}"""


def opening_seconds(page: Page, address: str) -> dict[str, float]:
    """Seconds from navigation until the script is done, and until the browser has painted what it made."""
    page.goto(address, wait_until="commit")
    page.wait_for_selector("html[data-ready]")
    return page.evaluate(
        """async () => {
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const entry = performance.getEntriesByType('navigation')[0];
          return {interactive: entry.domInteractive / 1000, painted: performance.now() / 1000};
        }"""
    )


def slider_milliseconds(page: Page, name: str, values: list[int]) -> dict[str, float]:
    times = page.evaluate(SLIDER_SCRIPT, [name, values])
    handled, painted = [row[0] for row in times], [row[1] for row in times]
    return {
        "handled_median_ms": statistics.median(handled),
        "handled_worst_ms": max(handled),
        "painted_median_ms": statistics.median(painted),
        "painted_worst_ms": max(painted),
    }


def measure(page_path: Path) -> dict[str, object]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        openings = []
        for _ in range(OPENINGS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            openings.append(opening_seconds(page, page_path.as_uri()))
        page.locator("#text").scroll_into_view_if_needed()
        # Half-way down the book, where the text around the screen is shaded.
        page.evaluate(
            "document.getElementById('reader').scrollTop = document.getElementById('reader').scrollHeight / 2"
        )
        stops = int(page.locator("#tau").get_attribute("max") or "60")
        result = {
            "chromium": browser.version,
            "painted_seconds_median": statistics.median(opening["painted"] for opening in openings),
            "painted_seconds_worst": max(opening["painted"] for opening in openings),
            "interactive_seconds_median": statistics.median(opening["interactive"] for opening in openings),
            "tau_slider": slider_milliseconds(page, "tau", [index % (stops + 1) for index in range(MOVES)]),
            "edits_slider": slider_milliseconds(page, "edits", [index % 6 for index in range(MOVES)]),
        }
        browser.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=520_000)
    parser.add_argument("--stride", type=int, default=25)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "report_browser.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        books = [
            Book("whole_book.txt", prose(11, arguments.characters), strength=0.95),
            Book("control.txt", prose(12, 20_000), split="control", strength=0.0),
        ]
        run = write_run(Path(folder) / "run", books, stride=arguments.stride, keep=5)
        begin = time.perf_counter()
        report = write_page([read([run])], Path(folder) / "report")
        build_seconds = time.perf_counter() - begin
        windows = (arguments.characters - 425) // arguments.stride + 1
        result = {
            "what": "report page of a synthetic book",
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": subprocess.run(
                ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
            ).stdout.strip(),
            "cpu_cores": os.cpu_count(),
            "load_average": os.getloadavg()[0],
            "platform": platform.platform(),
            "characters": arguments.characters,
            "windows_of_the_book": windows,
            "page_megabytes": report.page.stat().st_size / 1e6,
            "build_seconds": build_seconds,
            **measure(report.page),
        }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
