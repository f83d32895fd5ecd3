"""Replacing a function wherever it was imported to."""

import sys
from collections.abc import Callable
from typing import Any

import pytest


def replaced_everywhere(function: Callable[..., Any], other: Callable[..., Any], patch: pytest.MonkeyPatch) -> None:
    for module in [each for label, each in sys.modules.items() if label.startswith("byrote")]:
        for label, value in list(vars(module).items()):
            if value is function:
                patch.setattr(module, label, other)
