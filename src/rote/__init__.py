"""rote tells you how much of a text a language model can reproduce, exactly and nearly, with bounds you can defend."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Results", "RunConfig", "load_model", "nv_recall", "read_windows", "scan"]

if TYPE_CHECKING:
    from rote.measures.longform import nv_recall
    from rote.run.api import Results, load_model, read_windows, scan
    from rote.run.config import RunConfig

_HOMES = {
    "RunConfig": "rote.run.config",
    "Results": "rote.run.api",
    "load_model": "rote.run.api",
    "nv_recall": "rote.measures.longform",
    "read_windows": "rote.run.api",
    "scan": "rote.run.api",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import rote` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rote' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
