"""The contract of a measure: what is asked of a window, under which options, and the columns that hold the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from byrote.store.columns import Schema

if TYPE_CHECKING:  # whoever reads a run knows its columns without waiting for torch
    from byrote.scan.measured import Measured
    from byrote.scan.options import RunConfig


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured of a window: its columns, and `fill`, which gives each of them a value.

    A measure with options of its own declares them as a dataclass that `RunConfig` is made of: so they are flags, YAML
    keys and part of what tells runs apart.
    """

    name: str
    columns: Schema
    fill: Callable[["Measured"], dict[str, Any]]
    is_asked_for: Callable[["RunConfig"], bool]
    options: type | None = None
