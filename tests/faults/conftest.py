import pytest

from tests.scan.scans import TinyLab, make_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_lab(tmp_path_factory)
