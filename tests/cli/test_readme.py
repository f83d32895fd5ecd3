"""The README's commands are run as a reader would, and print what it says they do."""

import re
from pathlib import Path

import pytest

from tests.cli.pocket import PocketLab
from tests.cli.readme import BLOCK, README, transcript

TOLERANCE = 40
"""Percentage points. The model is trained where the test runs; its windows come in groups of fifteen."""


def words(text: str) -> str:
    """Without numbers, and without what stands in parentheses, which depends on them."""
    return " ".join(re.sub(r"\d[\d.,]*", "#", re.sub(r"\([^)]*\)", "", text)).split())


def shares(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(\d[\d.]*) ?%", re.sub(r"\([^)]*\)", "", text))]


@pytest.mark.slow
def test_the_commands_of_the_readme_print_what_it_shows(pocket: PocketLab, tmp_path: Path) -> None:
    blocks = [found["output"] for found in BLOCK.finditer(README.read_text(encoding="utf-8"))]
    assert len(blocks) == 2
    for shown, real in zip(blocks, transcript(tmp_path, BYROTE_CACHE=str(pocket.model.path.parent)), strict=True):
        assert words(shown) == words(real), "run python -m tests.cli.readme"
        assert shares(shown) == pytest.approx(shares(real), abs=TOLERANCE)
        assert len(shares(shown)) >= 4


def test_the_readme_fits_two_screens() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100


def test_words_and_shares_of_a_line() -> None:
    line = "pocket can reproduce 51.3 % (certified; at most 99.5 %) of the 1,990 passages; 0% (0%–22%)"
    assert words(line) == "pocket can reproduce # % of the # passages; #%"
    assert shares(line) == [51.3, 0.0]
