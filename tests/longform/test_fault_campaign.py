"""A short version of the campaign against endpoints (`bench/faults/endpoints.py`)."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "faults" / "endpoints.py"


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faults_endpoints", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # A dataclass looks its own module up.
        patch.setitem(__import__("sys").modules, "faults_endpoints", module)
        spec.loader.exec_module(module)
        return module


def test_no_endpoint_wedges_an_audit_passes_a_ceiling_or_gets_at_the_key(campaign: ModuleType) -> None:
    results = campaign.campaign(12, seed=5000)
    # How long a case took says something about this machine, too.
    assert {name: count for name, count in results["findings"].items() if name != "hang"} == {}, results["examples"]
    assert results["hostile_requests"] > 20
