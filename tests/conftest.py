"""Settings of the whole test suite: property tests without deadlines, the same examples in CI, one thread a process."""

import os

import pytest
import torch
from hypothesis import settings

# Shared cores make single examples slow at random; a property test is judged by what it finds.
settings.register_profile("rote", deadline=None)
settings.register_profile("rote_ci", deadline=None, derandomize=True, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("rote_ci" if os.environ.get("CI") else "rote")
    # Two workers on two cores: more threads would only wait for each other.
    torch.set_num_threads(1)
