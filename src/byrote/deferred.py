"""Modules that take long to import and are needed late, or by few runs."""

from importlib import import_module
from typing import Any


class Deferred:
    """Stands for a module, which is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
