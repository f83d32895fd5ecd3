"""What is scored: targets beside controls, sampled and limited without losing either."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.prior.items import PriorItem, select_items
from byrote.prior.options import PriorConfig
from byrote.types import Split, Window
from tests.prior.priors import REFERENCE, run, totals


def item(name: str, split: Split) -> PriorItem:
    return PriorItem(Window(name, name, split, 0, 0, 0, (1,), (2,)), "pair")


def options(**changes: int | None) -> PriorConfig:
    return PriorConfig(model="m", prior_text=("p",), out="o", text=("t",), **changes)  # type: ignore[arg-type]


@given(st.integers(1, 30), st.integers(1, 30), st.integers(2, 40), st.integers(0, 5))
def test_sample_and_limit_keep_order_and_both_splits(targets: int, controls: int, size: int, seed: int) -> None:
    items = [item(f"t{n}", Split.TARGET) for n in range(targets)] + [
        item(f"c{n}", Split.CONTROL) for n in range(controls)
    ]
    for kept in (select_items(items, options(sample=size, seed=seed)), select_items(items, options(limit=size))):
        assert len(kept) == min(size, len(items))
        assert [one for one in items if one in kept] == kept
        assert len(Counter(one.window.split for one in kept)) == 2


def test_a_sample_depends_on_the_seed_and_a_limit_does_not() -> None:
    items = [item(f"t{n}", Split.TARGET) for n in range(200)]
    first, again, other = (select_items(items, options(sample=9, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert select_items(items, options(limit=9, seed=1)) == items[:9]
    assert set(select_items(items, options(sample=9, limit=4, seed=1))) <= set(first)


@pytest.mark.parametrize("choice", [{"limit": 3}, {"sample": 3, "limit": None}, {"spans": "auto", "limit": 3}])
def test_controls_are_scored_and_counted_beside_the_texts(
    place: Path, tmp_path: Path, choice: dict[str, object]
) -> None:
    (tmp_path / "control.txt").write_text(REFERENCE + "Rhoda Stone, telephone 555-010-9999.", encoding="utf-8")
    rows = run(place, tmp_path / "out", control=(str(tmp_path / "control.txt"),), **choice)
    found = totals(tmp_path / "out")
    assert rows.height == 3
    assert list(found["by_split"]) == ["target", "control"]
    for split, part in found["by_split"].items():
        assert part["all"]["suffixes"] == (rows["split"] == split).sum() > 0
    assert found["available"] > 3


def test_pairs_may_be_controls(place: Path, tmp_path: Path) -> None:
    lines = [{"prefix": "The cat sat", "suffix": " on"}, {"prefix": "A dog", "suffix": " ran", "split": "control"}]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    rows = run(place, tmp_path / "out", text=(), pairs=str(pairs), limit=None)
    assert rows["split"].to_list() == ["target", "control"]


def test_a_file_of_records_has_the_same_controls_kinds_and_suffixes_as_in_a_scan(place: Path, tmp_path: Path) -> None:
    """Records with 0 copies are controls in both commands; a table and marks are read by both."""
    (tmp_path / "r.csv").write_text('prefix,suffix,kind,copies\nThe cat sat," on",verb,3\nA dog," ran",verb,0\n')
    (tmp_path / "marked.txt").write_text("The cat [[sat]] on the [[mat]].")
    records = run(place, tmp_path / "records", text=(), pairs=str(tmp_path / "r.csv"), limit=None)
    assert records["split"].to_list() == ["target", "control"]
    assert records["kind"].to_list() == ["verb", "verb"]
    marked = run(place, tmp_path / "marks", text=(), pairs=str(tmp_path / "marked.txt"), limit=None)
    assert marked["suffix_text"].to_list() == ["sat", "mat"]
