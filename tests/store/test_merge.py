"""Merging against the obvious version: all rows in a list, sorted by place and rank."""

import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_samples import CONTINUATIONS

from byrote.errors import RunError
from byrote.store.columns import Column, Schema
from byrote.store.parts import MergePlan, merge_parts
from byrote.store.tables import arrow_schema, table_of, write_table

CONTINUATIONS_SCHEMA = arrow_schema(CONTINUATIONS)
RESULT_COLUMNS: Schema = (Column("window_id", "text", is_required=True), Column("values", "list[float64]"))
RESULTS = arrow_schema(RESULT_COLUMNS)


def write(path: Path, rows: list[dict[str, Any]], schema: Schema) -> Path:
    write_table(path, rows, schema, run_id="ab")
    return path


def row(window: str) -> dict[str, Any]:
    return {"window_id": window, "values": [float(len(window)), -1.0]}


def continuation(window: str, rank: int) -> dict[str, Any]:
    return {"window_id": window, "rank": rank, "token_ids": [rank], "text": window, "log_p": -1.0, "distance": None}


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """Parts of a run, the order wanted, and the number of continuations of each window."""
    windows = draw(st.lists(st.text(max_size=4), unique=True, max_size=12))
    written = draw(st.permutations(windows))
    cuts = sorted(draw(st.lists(st.integers(0, len(windows)), max_size=3)))
    parts = [written[start:end] for start, end in zip([0, *cuts], [*cuts, len(windows)], strict=True)]
    return parts, draw(st.permutations(windows)), {window: draw(st.integers(0, 3)) for window in windows}


@given(runs(), st.integers(1, 7))
@settings(deadline=None)
def test_merged_rows_equal_sorting_everything(
    tmp_path_factory: pytest.TempPathFactory,
    run: tuple[list[list[str]], list[str], dict[str, int]],
    rows_per_stretch: int,
) -> None:
    parts, order, counts = run
    folder = tmp_path_factory.mktemp("merge")
    results, continuations = [], []
    for number, part in enumerate(parts):
        results.append(write(folder / f"r{number}", [row(window) for window in part], RESULT_COLUMNS))
        kept = [continuation(window, rank) for window in part for rank in reversed(range(counts[window]))]
        continuations.append(write(folder / f"c{number}", kept, CONTINUATIONS))

    plan = MergePlan(results, order)
    merge_parts(plan, results, folder / "r", schema=RESULTS, rows_per_stretch=rows_per_stretch)
    merge_parts(plan, continuations, folder / "c", schema=CONTINUATIONS_SCHEMA, rows_per_stretch=rows_per_stretch)
    assert pq.read_table(folder / "r").to_pylist() == [row(window) for window in order]
    assert pq.read_table(folder / "c").to_pylist() == [
        continuation(window, rank) for window in order for rank in range(counts[window])
    ]
    assert pq.read_schema(folder / "r").equals(RESULTS)

    in_stored_order = MergePlan(results, None)
    merge_parts(in_stored_order, results, folder / "s", schema=RESULTS, rows_per_stretch=rows_per_stretch)
    assert pq.read_table(folder / "s").to_pylist() == [row(window) for part in parts for window in part]


def test_window_in_two_parts_is_refused(tmp_path: Path) -> None:
    parts = [write(tmp_path / name, [row("a")], RESULT_COLUMNS) for name in ("one", "two")]
    with pytest.raises(RunError, match="in two parts"):
        MergePlan(parts, None)


def test_continuations_of_unknown_windows_are_refused(tmp_path: Path) -> None:
    results = [write(tmp_path / "r", [row("a")], RESULT_COLUMNS)]
    strangers = [write(tmp_path / "c", [continuation("a", 0), continuation("b", 0)], CONTINUATIONS)]
    with pytest.raises(RunError, match="2 rows in the parts but 1"):
        merge_parts(MergePlan(results, None), strangers, tmp_path / "out", schema=CONTINUATIONS_SCHEMA)


def test_part_damaged_after_opening_is_one_sentence(tmp_path: Path) -> None:
    results = [write(tmp_path / "r", [row("a")], RESULT_COLUMNS)]
    plan = MergePlan(results, None)
    broken = write(tmp_path / "c", [continuation("a", 0)], CONTINUATIONS)
    content = bytearray(broken.read_bytes())
    content[4:40] = bytes(36)
    broken.write_bytes(content)
    with pytest.raises(RunError, match="damaged while the run was open"):
        merge_parts(plan, [broken], tmp_path / "out", schema=CONTINUATIONS_SCHEMA)
    assert not (tmp_path / "out").exists()


def test_merge_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """Arrow's own allocations and Python's, at their peak, stay far below the whole run's size in memory."""
    wide: Schema = (Column("window_id", "text"), Column("values", "list[int32]"))
    parts = []
    for number in range(40):
        rows = [{"window_id": f"w{number * 500 + index}", "values": list(range(100))} for index in range(500)]
        parts.append(write(tmp_path / f"{number}", rows, wide))
    whole = table_of(rows, wide).nbytes * len(parts)
    plan = MergePlan(parts, None)
    usual, pool = pa.default_memory_pool(), pa.system_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        before = pool.bytes_allocated()
        merge_parts(plan, parts, tmp_path / "out", schema=arrow_schema(wide), rows_per_stretch=1000)
        python_peak = tracemalloc.get_traced_memory()[1]
        assert pool.max_memory() - before < whole / 2
        assert python_peak < whole / 2
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
