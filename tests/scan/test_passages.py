"""Long passages: bounds of R(m) against enumeration, and what a run says where nothing is left open."""

import math
from dataclasses import replace

import pytest

import byrote
from byrote.errors import ConfigError, WindowError
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from tests.scan.fuzz import Tally
from tests.scan.passages import TreesOf, check_passages, random_passages, true_passages


@pytest.mark.parametrize("number", range(1000, 1010))
def test_random_passages_hold_against_enumeration(number: int) -> None:
    tally = Tally()
    check_passages(number, tally, groups=2, windows_of_a_group=10)
    assert tally.violations == []
    assert tally.windows == 20


def test_with_all_roots_and_beams_every_length_is_exact_where_it_is_followed() -> None:
    model, config, windows = random_passages(3, groups=2, windows_of_a_group=12)
    config = replace(
        config, top_p=None, max_children=None, beam_width=200, passage_roots=500, screen="off", threshold=1e-9,
        negligible=0.0, stop_rule="off", closure=0,
    )  # fmt: skip
    rows = {one.row["window_id"]: one.row for one in Pipeline(model, config, decode=str).run(windows)}
    followed, trees = 0, TreesOf(model, config)
    for window in windows:
        row, truth = rows[window.window_id], true_passages(config, window, trees)
        masses = [truth[length // config.suffix_tokens - 1] for length in config.passage]
        if masses[-1] > 1e-6:
            followed += 1
            assert row["passage_lower"] == pytest.approx(masses, abs=1e-9)
            assert row["passage_upper"] == pytest.approx(masses, abs=1e-9)
            assert row["passage_tokens_lower"] == pytest.approx(config.suffix_tokens * math.fsum(truth), abs=1e-9)
            assert len(row["passage_ids"]) == config.passage_tokens
    assert followed > 5


def test_windows_that_end_too_soon_for_the_passage_are_refused() -> None:
    model, config, windows = random_passages(3, groups=1, windows_of_a_group=2)
    short = [replace(window, passage_ids=()) for window in windows]
    with pytest.raises(WindowError, match="cut windows with the same --passage"):
        list(Pipeline(model, config, decode=str).run(short))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"passage": (50, 120)}, "passage is 50,120; give rising multiples of suffix-tokens, which is 50"),
        ({"passage": (100, 50)}, "rising multiples"),
        ({"passage": (100,), "pairs": ("a.jsonl",)}, "leave pairs out"),
        ({"passage": (100,), "prompt": ("chat",)}, "leave prompt out"),
        ({"passage": (100,), "distance": "none"}, "the baseline"),
    ],
)
def test_what_is_no_passage_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig(**options)  # type: ignore[arg-type]


def test_windows_of_a_text_are_cut_with_room_for_the_passage(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from tests.scan.letters import letters

    model = letters()
    text = tmp_path / "text.txt"
    text.write_text("abcdef " * 20)
    given = {"prefix_tokens": 4, "suffix_tokens": 6, "edit_budget": 1, "top_k": 4, "stride_chars": 7}
    plain = byrote.read_windows(model, text, **given)
    long = byrote.read_windows(model, text, passage=(6, 18), **given)
    starts = {window.window_id: window for window in plain}
    assert 0 < len(long) < len(plain)
    for window in long:
        assert window == replace(starts[window.window_id], passage_ids=window.passage_ids)
        assert len(window.passage_ids) == 12
