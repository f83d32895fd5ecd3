"""A short run of the fuzz campaign (bench/fuzz_pipeline.py), and its own judge judged."""

import pytest

from byrote.verdict import Bounds
from tests.oracle import textbook_hamming, textbook_levenshtein
from tests.scan import fuzz
from tests.scan.fuzz import Tally, check_case, distances_of, random_case


@pytest.mark.parametrize("number", range(1000, 1012))
def test_random_windows_and_options_hold_against_enumeration(number: int) -> None:
    tally = Tally()
    case = random_case(number, windows_of_a_group=8)
    check_case(case, tally)
    assert tally.violations == [], case.config
    assert tally.windows == len(case.windows) == 40


def test_the_distances_are_those_of_the_textbook() -> None:
    case = random_case(3, windows_of_a_group=5)
    paths = list(max(case.trees.values(), key=lambda tree: len(tree.finished)).finished)[::7]
    for name, textbook in (("hamming", textbook_hamming), ("levenshtein", textbook_levenshtein)):
        found = distances_of(paths, paths[:5], name)
        assert found.tolist() == [[textbook(path, target) for target in paths[:5]] for path in paths]


def test_a_bound_that_is_a_millionth_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    check = fuzz._check_enclosed

    def shifted(name, bounds, truth, tally):  # type: ignore[no-untyped-def]
        check(name, Bounds(tuple(low + 1e-6 for low in truth), bounds.upper), truth, tally)

    monkeypatch.setattr(fuzz, "_check_enclosed", shifted)
    tally = Tally()
    check_case(random_case(1000, windows_of_a_group=4), tally)
    assert len(tally.violations) >= tally.windows
