"""One synthetic run and its report, built once for all tests of this room."""

from pathlib import Path

import pytest

from rote.report.build import ReportPaths, build_report
from rote.report.view import RunView, load_view
from tests.report.synthetic_run import write_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "demo", stride=40)


@pytest.fixture(scope="session")
def view(run_folder: Path) -> RunView:
    return load_view(run_folder)


@pytest.fixture(scope="session")
def report(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ReportPaths:
    return build_report([run_folder], tmp_path_factory.mktemp("report"))
