"""The text measure: true bounds by enumeration, the same windows for every tokenizer, runs from start to report."""

from tests.scan.fuzz import Tally
from tests.scan.texts import check_texts


def test_bounds_and_answers_of_random_models_are_true() -> None:
    """360 windows; bench/fuzz_text.py is the long version. A check of sampled answers fails by chance once in 1e12."""
    tally = Tally()
    for number in range(12):
        check_texts(number, tally, groups=2, windows_of_a_group=15)
    assert not tally.violations
    assert tally.windows == 360
