"""The tiny model and the `rote` command, for tests of whole runs."""

import pytest

from tests.scan.scans import Command, TinyLab, make_command, make_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_lab(tmp_path_factory)


@pytest.fixture
def rote(capsys: pytest.CaptureFixture[str]) -> Command:
    return make_command(capsys)
