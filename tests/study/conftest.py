"""The tiny models and the `byrote` command, for studies."""

from pathlib import Path
from typing import NamedTuple

import pytest

from byrote.lab.pocket import smaller_tiny_model
from tests.scan.scans import TinyLab, make_lab


class TwoModels(NamedTuple):
    """The tiny model, one of half its width with the same tokens, and the passages of both."""

    lab: TinyLab
    smaller: Path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> TwoModels:
    lab = make_lab(tmp_path_factory)
    return TwoModels(lab, smaller_tiny_model(lab.model.path.parent).path)
