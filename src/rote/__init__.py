"""rote tells you how much of a text a language model can reproduce, exactly and nearly, with bounds you can defend."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "AuditFolder",
    "Policy",
    "Results",
    "RoteError",
    "RunConfig",
    "SavedRun",
    "Window",
    "Windows",
    "audit",
    "errors",
    "load_model",
    "nv_recall",
    "prior",
    "read_run",
    "read_windows",
    "scan",
    "scan_rows",
    "testing",
]

if TYPE_CHECKING:
    from rote import errors, testing
    from rote.errors import RoteError
    from rote.interface.products import audit, prior
    from rote.interface.saved import SavedRun, read_run
    from rote.longform.audit_folder import AuditFolder
    from rote.longform.recall import nv_recall
    from rote.policy import Policy
    from rote.scan.api import load_model, read_windows, scan, scan_rows
    from rote.scan.options import RunConfig
    from rote.scan.results import Results, Windows
    from rote.types import Window

_HOMES = {
    "AuditFolder": "rote.longform.audit_folder",
    "Policy": "rote.policy",
    "Results": "rote.scan.results",
    "RoteError": "rote.errors",
    "RunConfig": "rote.scan.options",
    "SavedRun": "rote.interface.saved",
    "Window": "rote.types",
    "Windows": "rote.scan.results",
    "audit": "rote.interface.products",
    "load_model": "rote.scan.api",
    "nv_recall": "rote.longform.recall",
    "prior": "rote.interface.products",
    "read_run": "rote.interface.saved",
    "read_windows": "rote.scan.api",
    "scan": "rote.scan.api",
    "scan_rows": "rote.scan.api",
}
"""Where the public names live. The public modules are those of `__all__` that are not here."""


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import rote` does not wait for torch."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"rote.{name}")
    raise AttributeError(f"module 'rote' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__"])


class _Package(ModuleType):
    """`rote.scan` and `rote.prior` are functions, also after the rooms of these names were imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
