"""Long passages: bounds of R(m) against enumeration, and what a run says where nothing is left open."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

import byrote
from byrote.errors import ConfigError, WindowError
from byrote.scan.options import RunConfig
from byrote.scan.pipeline import Pipeline
from byrote.types import PassageBlock, Split, Window
from tests.scan.fuzz import Tally
from tests.scan.passages import TreesOf, check_passages, random_passages, true_passages
from tests.scan.text_passages import check_text_passages, texts_of
from tests.scan.text_passages import true_passages as true_passages_of_text
from tests.scan.texts import AnswersTo
from tests.table import TableModel


@pytest.mark.parametrize("number", range(1000, 1010))
@pytest.mark.parametrize("check", [check_passages, check_text_passages])
def test_random_passages_hold_against_enumeration(check: Callable[..., None], number: int) -> None:
    """Of tokens and of text; bench/fuzz_passages.py is the long version."""
    tally = Tally()
    check(number, tally, groups=2, windows_of_a_group=10)
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
            assert row["passage_expected_lower"] == pytest.approx(config.suffix_tokens * math.fsum(truth), abs=1e-9)
            assert len(row["passage_ids"]) == config.passage[-1]
    assert followed > 5


def test_answers_for_which_a_model_has_no_room_stay_open() -> None:
    """Room for a prefix of three tokens, two of an answer, and a block of four."""
    tally = Tally()
    for number in range(1000, 1010):
        check_text_passages(number, tally, groups=2, windows_of_a_group=10, max_positions=9)
    assert tally.violations == []


def test_text_is_exact_where_nothing_is_left_open() -> None:
    """Tokens have one or two letters, and the tokens of a block are as many as its letters: no answer is cut off. Some
    end with their last token in the next block."""
    pieces = [None, b"a", b"ab", b"b "]
    model = TableModel.random(5, vocab_size=4, spread=0.5, eos_ids=frozenset({0}), pieces=pieces)
    config = RunConfig(
        unit="text", suffix_chars=4, passage=(4, 8), prefix_tokens=1, suffix_tokens=8, edit_budget=1, top_k=None,
        beam_width=200, passage_roots=500, screen="off", threshold=1e-9, negligible=0.0, stop_rule="off", answers=0,
    )  # fmt: skip
    answers = AnswersTo(model, (1,), config.policy)
    for first, second in (("aba", "ab"), ("ab", "b a"), ("abb", " ab")):
        window = Window(
            "w", "text", Split.TARGET, 0, 0, 0, (1,), (1,) * len(first), suffix_text=first,
            blocks=(PassageBlock((1,) * len(second), second),),
        )  # fmt: skip
        (row,) = (one.row for one in Pipeline(model, config, decode=str).run([window]))
        truth = true_passages_of_text(model, answers, window, budget=1)
        assert truth.open.max() == 0
        assert 0.01 < truth.within[1] < truth.within[0]
        assert row["passage_lower"] == pytest.approx(truth.within, abs=1e-12)
        assert row["passage_upper"] == pytest.approx(truth.within, abs=1e-12)


def test_windows_that_end_too_soon_for_the_passage_are_refused() -> None:
    model, config, windows = random_passages(3, groups=1, windows_of_a_group=2)
    short = [replace(window, blocks=()) for window in windows]
    with pytest.raises(WindowError, match="cut windows with the same --passage"):
        list(Pipeline(model, config, decode=str).run(short))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"passage": (50, 120)}, "passage is 50,120; give rising multiples of suffix-tokens, which is 50"),
        ({"passage": (100, 50)}, "rising multiples"),
        ({"passage": (50, 200), "unit": "text"}, "rising multiples of suffix_chars, which is 200"),
        ({"passage": (100,), "pairs": ("a.jsonl",)}, "leave pairs out"),
        ({"passage": (100,), "prompt": ("chat",)}, "leave prompt out"),
        ({"passage": (100,), "distance": "none"}, "the baseline"),
    ],
)
def test_what_is_no_passage_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig(**options)  # type: ignore[arg-type]


def test_text_goes_on_behind_a_window_in_blocks_that_end_with_words() -> None:
    from tests.scan.letters import letters

    model, text = letters(), "abcdef ab " * 20
    given = {"unit": "text", "prefix_chars": 12, "suffix_chars": 10, "stride_chars": 7, "top_k": 4}
    plain = byrote.read_windows(model, texts=[text], **given)
    long = byrote.read_windows(model, texts=[text], passage=(10, 30), **given)
    starts = {window.window_id: window for window in plain}
    assert 0 < len(long) < len(plain)
    for window in long:
        assert window == replace(starts[window.window_id], blocks=window.blocks)
        ends = [window.char_end + len("".join(texts_of(window)[1:number])) for number in (1, 2, 3)]
        assert "".join(texts_of(window)) == text[window.suffix_char_start : ends[-1]]
        assert all(text[end - 1] != " " and text[end : end + 1] in ("", " ") for end in ends)
        for block in window.blocks:
            assert model.decode(block.token_ids) == block.text


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
        assert window == replace(starts[window.window_id], blocks=window.blocks)
        assert [len(block.token_ids) for block in window.blocks] == [6, 6]
