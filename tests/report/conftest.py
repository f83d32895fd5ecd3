"""One synthetic run and its report, built once for all tests of this room."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from byrote.report.content import Written
from byrote.report.page import write_page
from byrote.report.view import RunView, load_view
from byrote.scan.report import read
from tests.report.synthetic_run import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.browsers import Opened


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "demo", stride=40)


@pytest.fixture(scope="session")
def view(run_folder: Path) -> RunView:
    return load_view(run_folder)


@pytest.fixture(scope="session")
def report(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_page([read([run_folder])], tmp_path_factory.mktemp("report"))


@pytest.fixture
def context(browser: "Browser") -> "Iterator[BrowserContext]":
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    yield made
    made.close()


@pytest.fixture
def opened(context: "BrowserContext", report: Written) -> "Opened":
    from tests.browsers import Opened

    return Opened(context, report.page)
