"""rote tells you how much of a text a language model can reproduce, exactly and nearly, with bounds you can defend."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Results", "RunConfig", "load_model", "nv_recall", "read_windows", "scan"]

if TYPE_CHECKING:
    from rote.longform import nv_recall
    from rote.scan.api import Results, load_model, read_windows, scan
    from rote.scan.options import RunConfig

_HOMES = {
    "RunConfig": "rote.scan.options",
    "Results": "rote.scan.api",
    "load_model": "rote.scan.api",
    "nv_recall": "rote.longform",
    "read_windows": "rote.scan.api",
    "scan": "rote.scan.api",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import rote` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rote' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


class _Package(ModuleType):
    """`rote.scan` is the function, also after the room of the same name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
