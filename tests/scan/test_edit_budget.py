"""The default edit budget: a tenth of the suffix, so that near never means much of it changed."""

from pathlib import Path

import pytest

import byrote
from byrote.scan.options import RunConfig
from tests.golden.models import LetterModel, letters

NUMBERS = letters("numbers", 200)


@pytest.mark.parametrize(("tokens", "edits"), [(100, 10), (50, 5), (49, 4), (12, 1), (10, 1), (9, 0), (1, 0)])
def test_it_is_a_tenth_rounded_down(tokens: int, edits: int) -> None:
    assert RunConfig(suffix_tokens=tokens).edits == edits
    assert RunConfig(suffix_tokens=50, edit_budget=3).edits == 3


def test_one_given_stays_and_the_run_names_it(tmp_path: Path) -> None:
    model, text = LetterModel(), tmp_path / "text.txt"
    text.write_text(NUMBERS, encoding="utf-8")
    small = {"prefix_tokens": 6, "suffix_tokens": 12, "stride_chars": 40, "top_k": 5, "beam_width": 4}
    for given, edits in (({}, 1), ({"edit_budget": 3}, 3), ({"edit_budget": 0}, 0)):
        windows = byrote.read_windows(model, text, **small, **given)
        results = byrote.scan(model, windows, **given)
        run = byrote.read_run(results.save(tmp_path / f"run-{edits}"))
        assert (run.manifest or {})["config"]["edit_budget"] == edits
        assert all(len(row["mass_lower"]) == edits + 1 for row in results)


def test_of_pairs_it_is_a_tenth_of_the_shortest_suffix() -> None:
    """A number said with a few of its digits changed is another number."""
    model = LetterModel()
    pairs = [
        {"id": f"{start}-{length}", "prefix": NUMBERS[start : start + 8], "suffix": NUMBERS[start + 8 :][:length]}
        for start, length in ((0, 30), (40, 12), (80, 24))
    ]
    for given, edits in ((pairs, 1), (pairs[::2], 2)):
        windows = byrote.read_windows(model, pairs=given, top_k=5, beam_width=4)
        assert all(len(row["mass_lower"]) == edits + 1 for row in byrote.scan(model, windows))
        assert all(len(row["mass_lower"]) == edits + 1 for row in byrote.scan(model, list(windows), top_k=5))
