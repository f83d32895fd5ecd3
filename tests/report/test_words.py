"""Numbers in words that a reader meets."""

import math

import pytest

from rote.report.words import number_from_log


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
