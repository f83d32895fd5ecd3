"""The compact set against Python's own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.store import parts as id_set
from byrote.store.columns import Column
from byrote.store.parts import IdSet, keys_of_file
from byrote.store.tables import open_table, write_table

names = st.sampled_from(["", "a", "b.txt", "a@1", "a@", "é\n"])
places = st.tuples(names, st.integers(0, 30) | st.sampled_from([10**12, 10**17]))
ids = places.map(lambda place: f"{place[0]}@{place[1]}")
any_id = ids | names | st.sampled_from(["a@01", "a@-1", "a@+1", "b.txt@1 ", "@", "a@٣", "a@1000000000000000000000"])


@pytest.fixture(autouse=True, scope="module")
def _few_recent_keys() -> Iterator[None]:
    """So that ids are looked up among sorted keys and among new ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_set, "RECENT", 4)
        yield


@given(
    added=st.lists(st.lists(any_id, max_size=9), max_size=6),
    asked=st.lists(any_id),
    stride=st.sampled_from([1, 2, 3, 20, 10**9]),
)
def test_it_holds_what_was_added_and_nothing_else(added: list[list[str]], asked: list[str], stride: int) -> None:
    compact, plain = IdSet(stride=stride), set[str]()
    for some in added:
        compact.update(some)
        plain.update(some)
    assert [one in compact for one in (*plain, *asked)] == [one in plain for one in (*plain, *asked)]


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 12)), max_size=12), max_size=5),
    stride=st.integers(1, 5),
)
def test_keys_may_come_again_and_lie_between_others(batches: list[list[tuple[int, int]]], stride: int) -> None:
    """Whatever the order, the intervals hold every key once."""
    compact, plain = IdSet(stride=stride), {pair for batch in batches for pair in batch}
    compact.add_keys(np.array(batch, np.uint64).reshape(-1, 2).T for batch in batches)
    assert len(compact) == len(plain)
    documents, low, high = compact._intervals
    kept = [
        (int(one), turned) for one, *ends in zip(documents, low, high, strict=True) for turned in range(*map(int, ends))
    ]
    assert kept == sorted((document, compact._turned(place)) for document, place in plain)


@pytest.mark.parametrize("separator", ["@", "#"])
def test_windows_a_stride_apart_weigh_nothing_once_their_gaps_are_closed(separator: str) -> None:
    """Windows end nearly in order: some are late, and one never comes."""
    compact = IdSet(stride=20)
    names = [f"{document}{separator}{20 * place}" for document in ("a", "b") for place in range(500)]
    late = set(names[::7])
    compact.update(name for name in names if name not in late)
    compact.update(sorted(late - {names[700]}))
    compact.update(f"c{separator}{20 * place}" for place in range(8))  # so that the late ones are not the newest
    assert len(compact) == len(names) - 1 + 8
    assert compact.pieces <= 4 + id_set.RECENT
    assert names[700] not in compact


@given(added=st.lists(any_id, max_size=30), document=names, starts=st.lists(st.integers(0, 30)))
def test_places_of_a_document_are_the_windows_of_these_ids(added: list[str], document: str, starts: list[int]) -> None:
    held = IdSet(added).holds_places(document, np.array(starts, np.int64))
    assert held.tolist() == [f"{document}@{start}" in added for start in starts]


@given(rows=st.lists(places, max_size=12), odd=st.none() | any_id, are_places=st.booleans())
def test_keys_of_a_file_are_those_of_its_ids(
    rows: list[tuple[str, int]], odd: str | None, are_places: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Windows of texts, known by their places or by their names, and with a window that is no place (as of pairs)."""
    stored = [{"window_id": f"{name}@{start}", "document": name, "char_start": start} for name, start in rows]
    stored += [] if odd is None or are_places else [{"window_id": odd, "document": "a", "char_start": 1}]
    kinds = [Column("window_id", "text"), Column("document", "text"), Column("char_start", "int64")]
    columns = tuple(kinds if are_places else kinds[:1])
    path = tmp_path_factory.mktemp("part") / "part.parquet"
    write_table(path, [{one.name: row[one.name] for one in columns} for row in stored], columns, run_id="r")
    compact, plain = IdSet(), {str(row["window_id"]) for row in stored}
    with open_table(Path(path)) as file:
        compact.add_keys(keys_of_file(file, are_places=are_places))
    asked = [*plain, *(f"{name}@{start}" for name in ("a", "b.txt") for start in range(4))]
    assert [one in compact for one in asked] == [one in plain for one in asked]
