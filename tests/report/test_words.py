"""Numbers in words that a reader meets."""

import math

import pytest

from byrote.report.templates import tied
from byrote.report.words import number_from_log


@pytest.mark.parametrize(
    ("log_value", "words"),
    [
        (0.0, "1"),
        (math.log(3.14159), "3.14"),
        (math.log(1234.0), "1,230"),
        (math.log(123_456.0), "1.2 × 10⁵"),
        (math.log(99_999.0), "1 × 10⁵"),
        (math.log(10) * 57.38, "2.4 × 10⁵⁷"),
        (math.log(0.00123), "0.00123"),
        (math.log(2e-7), "2 × 10⁻⁷"),
        (math.inf, "∞"),
        (-math.inf, "0"),
        (math.nan, "–"),
    ],
)
def test_numbers_from_logarithms_have_three_digits_or_a_power_of_ten(log_value: float, words: str) -> None:
    assert number_from_log(log_value) == words


def test_numbers_and_options_stay_on_one_line_and_markup_stays_text() -> None:
    option = '<span class="option">--max-rate</span>'
    assert tied("at most 5 % (--max-rate), 2 × 10³") == f"at most 5\u00a0% ({option}), 2\u00a0×\u00a010³"
    assert tied("<b>a--b") == "&lt;b&gt;a--b"
    assert tied("3 of 4 of them") == "3\u00a0of\u00a04 of them"
    assert tied(tied("5 %")) == "5\u00a0%"
