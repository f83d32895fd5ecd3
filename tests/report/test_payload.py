"""What the page carries is what Python computed, and nothing in it can leave its script element."""

import base64
import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byrote.report.analysis.rates import threshold_grid
from byrote.report.reader import (
    CONTINUATION_BLOCK,
    continuation_blocks,
    packed,
    run_payload,
    script_safe_json,
    utf16_offsets,
)
from byrote.report.view import RunView, load_view
from tests.report.synthetic_run import Book, prose, write_run

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def unpack(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


@given(TEXTS)
def test_offsets_are_those_of_utf16(text: str) -> None:
    offsets = utf16_offsets(text)
    for index in range(len(text) + 1):
        expected = len(text[:index].encode("utf-16-le")) // 2
        assert (index if offsets is None else offsets[index]) == expected


@given(st.text(max_size=60))
def test_embedded_json_round_trips_and_holds_no_markup(text: str) -> None:
    embedded = script_safe_json({"text": text})
    assert json.loads(embedded) == {"text": text}
    assert not set(embedded) & {"<", ">", "&", "\u2028", "\u2029"}
    embedded.encode("utf-8")


def test_closing_script_tags_are_escaped() -> None:
    assert "</script" not in script_safe_json(["</script><script>alert(1)</script>", "<!--"])


def test_packed_arrays_are_little_endian_and_exact() -> None:
    values = [0.1, 1e-300, 1.0, 0.0]
    assert unpack(packed(values, "f8"), "<f8").tolist() == values
    assert unpack(packed([1, 65536], "u4"), "<u4").tolist() == [1, 65536]


def test_masses_and_positions_of_the_page_are_those_of_the_run(view: RunView) -> None:
    payload = run_payload(view, thresholds=threshold_grid(), text_places={})
    windows = payload["windows"]
    for edits in range(view.population.edit_budget + 1):
        assert np.array_equal(unpack(windows["mass"][edits], "<f8"), view.population.mass(edits))
    assert view.population.mass_upper is not None
    for edits, column in enumerate(windows["upper"]):
        assert np.array_equal(unpack(column, "<f8"), view.population.mass_upper[:, edits])
    assert np.array_equal(unpack(windows["verbatim"], "<f8"), view.population.verbatim())
    impossible = unpack(windows["impossible"], "u1").astype(bool)
    assert impossible.tolist() == [log_p == -np.inf for log_p in view.results["log_p_verbatim"]]
    assert (~impossible & (view.population.verbatim() == 0)).any(), "some are too small for a float, not impossible"
    assert np.array_equal(unpack(windows["suffix"], "<u4"), view.population.suffix_char_start)
    ranks = unpack(windows["ranks"], "u1").reshape(len(view.population), -1)
    assert ranks[3].tolist() == [min(rank, 255) for rank in view.results["suffix_ranks"][3]]
    for entry in payload["documents"]:
        rows = view.population.document[entry["first"] : entry["first"] + entry["count"]]
        assert set(rows) == {entry["name"]}


def test_positions_after_an_astral_character_are_shifted(tmp_path) -> None:
    text = "🦊" * 30 + prose(5, 1000)
    view = load_view(write_run(tmp_path / "run", [Book("fox.txt", text)], stride=100))
    windows = run_payload(view, thresholds=threshold_grid(), text_places={})["windows"]
    as_utf16 = text.encode("utf-16-le")
    for row, (start, end) in enumerate(
        zip(unpack(windows["suffix"], "<u4"), unpack(windows["end"], "<u4"), strict=True)
    ):
        shown = as_utf16[2 * int(start) : 2 * int(end)].decode("utf-16-le")
        population = view.population
        assert shown == text[population.suffix_char_start[row] : population.char_end[row]]


def test_continuation_blocks_hold_each_window_best_first(view: RunView) -> None:
    assert view.continuations is not None
    blocks = continuation_blocks(view)
    assert len(blocks) == -(-len(view.population) // CONTINUATION_BLOCK)
    found = 0
    for number, block in enumerate(blocks):
        if not block:
            continue
        for offset, kept in enumerate(json.loads(gzip.decompress(base64.b64decode(block)))):
            name = view.population.window_id[number * CONTINUATION_BLOCK + offset]
            expected = view.continuations.filter(window_id=name).sort("log_p", descending=True)
            assert [entry[0] for entry in kept] == expected["text"].to_list()
            assert [entry[1] for entry in kept] == expected["log_p"].to_list()
            found += len(kept)
    assert found == len(view.continuations)


def test_threshold_stops_are_ascending_short_decimals_and_hold_the_anchor() -> None:
    grid = threshold_grid(0.0007)
    assert 0.0007 in grid
    assert 0.001 in grid
    assert list(grid) == sorted(set(grid))
    assert (grid[0], grid[-1]) == (1e-6, 1.0)
    assert all(len(f"{stop:.2e}".rstrip("0")) and float(f"{stop:.3g}") == stop for stop in grid)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_json_cannot_hold_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_safe_json([value])
