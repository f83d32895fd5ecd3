"""How much of a text a language model can reproduce, exactly and nearly, with bounds you can defend."""

import sys
from importlib import import_module as _import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "AuditFolder",
    "ByroteError",
    "Policy",
    "Results",
    "RunConfig",
    "SavedRun",
    "Window",
    "Windows",
    "audit",
    "change",
    "errors",
    "gate",
    "load_model",
    "mc",
    "nv_recall",
    "prior",
    "read_run",
    "read_windows",
    "risk",
    "scan",
    "scan_rows",
    "study",
    "testing",
]

if TYPE_CHECKING:
    from byrote import errors, testing
    from byrote.api import SavedRun, audit, change, gate, mc, prior, read_run, risk, study
    from byrote.errors import ByroteError
    from byrote.longform.recall import nv_recall
    from byrote.longform.run import AuditFolder
    from byrote.policy import Policy
    from byrote.scan.api import Results, Windows, load_model, read_windows, scan, scan_rows
    from byrote.scan.options import RunConfig
    from byrote.types import Window

_NAMES = {
    "byrote.api": ("SavedRun", "audit", "change", "gate", "mc", "prior", "read_run", "risk", "study"),
    "byrote.errors": ("ByroteError",),
    "byrote.longform.recall": ("nv_recall",),
    "byrote.longform.run": ("AuditFolder",),
    "byrote.policy": ("Policy",),
    "byrote.scan.api": ("Results", "Windows", "load_model", "read_windows", "scan", "scan_rows"),
    "byrote.scan.options": ("RunConfig",),
    "byrote.types": ("Window",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
"""Where the public names live. The public modules are those of `__all__` that are not here."""


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import byrote` does not wait for torch."""
    if name in _HOMES:
        return getattr(_import_module(_HOMES[name]), name)
    if name in __all__:
        return _import_module(f"byrote.{name}")
    raise AttributeError(f"module 'byrote' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__"])


class _Package(ModuleType):
    """`byrote.scan`, `byrote.prior`, `byrote.study` are functions, also once the rooms of these names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
