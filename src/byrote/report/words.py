"""Numbers as a reader sees them, the same in page, terminal and model card."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from byrote.types import Interval

if TYPE_CHECKING:  # commands that show no rate start without scipy
    from byrote.stats.intervals import Rate

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
THIN_SPACE = "\u2009"


def percent(share: float) -> str:
    """A share as a percentage; never 0 % or 100 % when it is not exactly that."""
    if math.isnan(share):
        return "–"
    if share in (0.0, 1.0):
        return f"{share * 100:.0f} %"
    if share * 100 < 0.1:
        return "< 0.1 %"
    return "> 99.9 %" if share * 100 > 99.9 else f"{share * 100:.1f} %"


def probability(value: float) -> str:
    """Three digits, scientific below 0.001."""
    if value == 0:
        return "0"
    if value >= 0.001:
        return f"{value:.3g}"
    return power_of_ten(math.log10(value))


def number_from_log(log_value: float) -> str:
    """exp(log_value), however large or small: three digits from 0.001 to 9,999, otherwise a power of ten."""
    if math.isnan(log_value):
        return "–"
    if math.isinf(log_value):
        return "∞" if log_value > 0 else "0"
    decades = log_value / math.log(10)
    return f"{float(f'{math.exp(log_value):.3g}'):,g}" if -3 <= decades < 3.9999 else power_of_ten(decades)


def power_of_ten(decades: float) -> str:
    """10^decades with two digits: `2.4 × 10⁵⁷`."""
    exponent = math.floor(decades)
    mantissa = f"{10 ** (decades - exponent):.1f}"
    if mantissa == "10.0":
        mantissa, exponent = "1.0", exponent + 1
    return f"{mantissa.removesuffix('.0')} × 10{str(exponent).translate(SUPERSCRIPTS)}"


def integer(value: int) -> str:
    return f"{value:,}".replace(",", THIN_SPACE)


def interval_words(interval: Interval) -> str:
    """`1.2 % to 3.4 %`, or why there is none."""
    if not interval.is_defined:
        return f"no interval: {interval.reason or 'undefined'}"
    return f"{percent(interval.low)} to {percent(interval.high)}"


def share_words(rate: "Rate") -> str:
    """`17.0 % (1.6 % to 52.5 %)`."""
    return f"{percent(rate.value)} ({interval_words(rate.interval)})"


def plural(count: int, noun: str) -> str:
    return f"{integer(count)} {noun}{'' if count == 1 else 's'}"


def count_of(share: float | None, windows: int) -> str:
    """`24 of 25`: a document has few windows, and a share of few would need its interval."""
    return "–" if share is None else f"{integer(round(share * windows))} of {integer(windows)}"


def listed(names: list[str], *, most: int = 4) -> str:
    """`a, b and c`; long lists end in a count."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "none"


def policy_words(config: Mapping[str, Any]) -> str:
    """The decoding policy in a phrase."""
    given = {name: config.get(name) for name in ("top_k", "top_p", "temperature")}
    parts = [f"{name.replace('_', '-')} {value:g}" for name, value in given.items() if value is not None]
    return ", ".join(parts) or "policy not recorded"
