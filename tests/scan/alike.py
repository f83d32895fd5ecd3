"""Two runs are one run, measured in two ways: rows, continuations, texts and totals, numbers up to rounding."""

from pathlib import Path
from typing import Any

import polars as pl
import polars.testing
import pytest

from byrote.store.read import read_run


def assert_same_run(left: Path, right: Path) -> None:
    """Numbers up to rounding: windows keep other company in a shard."""
    one, other = read_run(left), read_run(right)
    assert one.identity == other.identity
    assert_same_rows(one.results, other.results)
    assert one.continuations is not None
    assert other.continuations is not None
    assert_same_rows(one.continuations, other.continuations)
    assert one.texts is not None
    assert other.texts is not None
    assert one.texts.equals(other.texts)
    assert one.manifest is not None
    assert other.manifest is not None
    assert one.manifest["texts"] == other.manifest["texts"]
    assert nearly(one.manifest["totals"], other.manifest["totals"])


def nearly(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(nearly(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(nearly, left, right))
    return bool(left == pytest.approx(right)) if isinstance(left, float) else bool(left == right)


def assert_same_rows(left: pl.DataFrame, right: pl.DataFrame) -> None:
    polars.testing.assert_frame_equal(left, right, rel_tol=1e-4, abs_tol=1e-9)
