"""The tiny model and the `byrote` command, for tests of whole runs."""

from pathlib import Path

import pytest

from byrote.report.figures.style import save_bytes
from tests.cli.every_kind import make_every_kind
from tests.cli.pocket import PocketLab, make_pocket_lab
from tests.cli.replacing import replaced_everywhere
from tests.scan.scans import TinyLab


@pytest.fixture(scope="session")
def every_kind(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_every_kind(lab, tmp_path_factory.mktemp("kinds"))


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, not rendered: what their files look like is tested elsewhere, and takes most of the time."""
    replaced_everywhere(save_bytes, lambda figure, kind: b"<svg/>", monkeypatch)


@pytest.fixture(scope="session")
def pocket(tmp_path_factory: pytest.TempPathFactory) -> PocketLab:
    return make_pocket_lab(tmp_path_factory)
