"""The compact set against Python's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.store import id_set
from rote.store.id_set import IdSet


@given(added=st.lists(st.lists(st.text(max_size=3), max_size=9), max_size=6), asked=st.lists(st.text(max_size=3)))
def test_it_holds_what_was_added_and_nothing_else(added: list[list[str]], asked: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_set, "RECENT", 4)
        compact, plain = IdSet(), set[str]()
        for ids in added:
            compact.update(ids)
            plain.update(ids)
        assert [one in compact for one in (*plain, *asked)] == [one in plain for one in (*plain, *asked)]


def test_hashes_that_share_their_first_half_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_set, "_hash", lambda window_id: bytes(8) + window_id.encode().rjust(8))
    monkeypatch.setattr(id_set, "RECENT", 1)
    compact = IdSet(["a", "b", "c"])
    assert [one in compact for one in "abcd"] == [True, True, True, False]
