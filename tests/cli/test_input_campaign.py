"""A short version of the campaign against bad input (`bench/faults/inputs.py`)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "faults" / "inputs.py"


@pytest.fixture(scope="module")
def inputs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faults_inputs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules["faults_inputs"] = module
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_bad_input_is_refused_in_one_sentence_or_read_right(inputs: ModuleType) -> None:
    """Time is the campaign's to measure, on a machine that does nothing else."""
    areas = list(inputs.INSTALLED)
    found = inputs.campaign(12 * len(areas), seed=7, areas=areas)["findings"]
    assert [finding for finding in found if not finding["finding"].startswith("hang")] == []
