"""The compact set of finished windows against Python's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.store import parts
from byrote.store.columns import Column, Schema
from byrote.store.parts import FinishedWindows
from byrote.store.tables import open_table, write_table

COLUMNS: Schema = (Column("window_id", "text"), Column("document", "text"), Column("char_start", "int64"))
documents = st.sampled_from(["", "a", "b.txt", "a@1", "a@", "é\n"])
odd_ids = documents | st.sampled_from(["a@01", "a@-1", "a@+1", "b.txt@1 ", "@", "a@٣", "a@999999999999999999", "a#3"])


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Windows of texts, named by their places, and windows of any other name, no name twice."""
    found: dict[str, dict[str, Any]] = {}
    for _ in range(draw(st.integers(0, 25))):
        document, start = draw(documents), draw(st.integers(0, 300))
        window_id = draw(st.just(f"{document}@{start}") | odd_ids)
        found[window_id] = {"window_id": window_id, "document": document, "char_start": start}
    return list(found.values())


def assert_equal(compact: FinishedWindows, plain: set[str]) -> None:
    assert len(compact) == len(plain)
    some = [f"{document}@{start}" for document in ("a", "b.txt", "c") for start in (*range(40), 10**17, 10**30)]
    for window_id in (*plain, *some, "a@01", "a@1 ", "a", "@"):
        assert (window_id in compact) == (window_id in plain)


def finished_of(rows: list[dict[str, Any]], folder: Path, columns: Schema = COLUMNS) -> FinishedWindows:
    path = folder / "part.parquet"
    write_table(path, [{column.name: row[column.name] for column in columns} for row in rows], columns, run_id="r")
    compact = FinishedWindows()
    with open_table(path) as table:
        compact.add_table(table)
    return compact


@given(added=rows(), names_alone=st.booleans())
def test_it_holds_what_was_added_and_nothing_else(
    added: list[dict[str, Any]], names_alone: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tables of some kinds of run have no documents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROWS_PER_BATCH", 4)
        compact = finished_of(added, tmp_path_factory.mktemp("part"), COLUMNS[:1] if names_alone else COLUMNS)
    assert_equal(compact, {row["window_id"] for row in added})


@given(added=rows(), document=documents, starts=st.lists(st.integers(0, 300)))
def test_places_of_a_document_are_the_windows_of_these_ids(
    added: list[dict[str, Any]], document: str, starts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    added = [row for row in added if row["window_id"] == f"{row['document']}@{row['char_start']}"]
    compact = finished_of(added, tmp_path_factory.mktemp("part"))
    names = {row["window_id"] for row in added}
    held = compact.holds_places(document, np.array(starts, np.int64))
    assert held.tolist() == [f"{document}@{start}" in names for start in starts]


def test_windows_of_a_text_take_a_bit_per_character(tmp_path: Path) -> None:
    starts = range(0, 200_000, 20)
    rows = [{"window_id": f"book.txt@{start}", "document": "book.txt", "char_start": start} for start in starts]
    compact = finished_of(rows, tmp_path)
    assert sum(map(len, compact._bits.values())) == 200_000 // 8 - 2
    assert not compact._names
