"""Values of a case against the committed ones: integers and words equal, floats within a tolerance, samples within what
chance allows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.golden.names import ADDED, COLUMNS, golden_name, golden_word


class Tolerance(NamedTuple):
    """Floats are equal within `absolute` or within `relative` of the committed one."""

    relative: float
    absolute: float

    def allows(self, found: float, expected: float) -> bool:
        return math.isclose(found, expected, rel_tol=self.relative, abs_tol=self.absolute)


TABLE = Tolerance(1e-4, 1e-9)
"""Models that are tables: rounding alone, in float64."""
NETWORK = Tolerance(1e-3, 1e-7)
"""Networks in float32, whose sums are in another order on another processor. Logits move by some 10⁻⁶ nats, and so do
log-probabilities relative to 1; masses of up to eight tokens by less than 10⁻⁴ of themselves."""


class Sampling(NamedTuple):
    """How a table holds sampled numbers: their interval, and the columns that another order of random numbers may
    change. `token_evals` of a row with samples is among these."""

    interval: tuple[str, str]
    columns: frozenset[str]


SAMPLINGS = {
    "masses": Sampling(
        ("mass_low", "mass_high"),
        frozenset({
            "mass_estimate", "mass_standard_error", "mass_low", "mass_high", "mass_limit", "mass_samples", "mass_hits",
            "mass_sampled", "sampled_verdict", "mass", "standard_error", "hits", "replicates", "curve_hits",
            "curve_evals",
        }),
    ),
    "ratios": Sampling(
        ("log_ratio_low", "log_ratio_high"),
        frozenset({
            "log_p_prior", "prior_relative_error", "prior_effective_prefixes", "prior_largest_share",
            "trial_log_priors", "log_ratio", "log_ratio_low", "log_ratio_high", "interval_reason",
            "log_ratio_sound_low", "log_ratio_sound_high", "log_least_ratio", "log_least_ratio_low",
            "log_least_ratio_high", "prior_verdict", "is_settled", "point_verdict", "ratio_verdict",
        }),
    ),
}  # fmt: skip


def table(
    rows: Sequence[Mapping[str, Any]], *, names_only: Sequence[str] = (), sampled: str | None = None
) -> dict[str, Any]:
    """Rows as the names of all columns, and the values of each; of columns in `names_only` the names alone.

    `sampled` names one of SAMPLINGS, if the table holds sampled numbers.
    """
    columns = [golden_name(name) for name in (rows[0] if rows else ()) if name not in ADDED]
    values = [{golden_name(name): value for name, value in row.items()} for row in rows]
    found = {name: [row[name] for row in values] for name in columns if name not in names_only}
    return {"columns": columns, "values": found} | ({} if sampled is None else {"sampled": sampled})


def plain(value: Any) -> Any:
    """What JSON can hold, with the names of the committed files. Floats keep nine digits."""
    if isinstance(value, Mapping):
        return {golden_name(str(name)): plain(one) for name, one in value.items() if name not in ADDED}
    if isinstance(value, str):
        return golden_word(str(value))
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    raise TypeError(f"a golden value of type {type(value).__name__}: {value!r}")


def differences(found: Any, expected: Any, tolerance: Tolerance, place: str = "") -> Iterator[str]:
    """One sentence for each value that is not the committed one. Both are what `plain` makes."""
    if isinstance(expected, dict) and isinstance(found, dict) and "sampled" in expected:
        yield from _sampled_differences(found, expected, tolerance, place)
    elif isinstance(expected, dict) and isinstance(found, dict):
        removed = {name for name, today in COLUMNS.items() if today is None}
        for name in expected.keys() - found.keys() - removed:
            yield f"{place}/{name} is missing"
        for name in found.keys() - expected.keys():
            yield f"{place}/{name} is new"
        for name in (name for name in expected if name in found):
            yield from differences(found[name], expected[name], tolerance, f"{place}/{name}")
    elif isinstance(expected, list) and isinstance(found, list):
        if place.endswith("/columns"):
            expected = [name for name in expected if COLUMNS.get(name, name) is not None]
        if len(found) != len(expected):
            yield f"{place} has {len(found)} entries, not {len(expected)}: {found} instead of {expected}"
            return
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, tolerance, f"{place}/{number}")
    elif not _is_same(found, expected, tolerance):
        yield f"{place} is {found!r}, not {expected!r}"


def _is_same(found: Any, expected: Any, tolerance: Tolerance) -> bool:
    if isinstance(expected, float) or isinstance(found, float):
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (found, expected))
        return numbers and tolerance.allows(found, expected)
    return type(found) is type(expected) and bool(found == expected)


def _sampled_differences(
    found: dict[str, Any], expected: dict[str, Any], tolerance: Tolerance, place: str
) -> Iterator[str]:
    """Everything that is not sampled as usual; sampled numbers by their intervals."""
    sampling = SAMPLINGS[expected["sampled"]]
    bounds = [
        list(zip(*(side["values"][name] for name in sampling.interval), strict=True)) for side in (found, expected)
    ]
    has_samples, had_samples = ([None not in pair for pair in side] for side in bounds)
    if has_samples != had_samples:
        yield f"{place}: other rows have samples: {has_samples}, not {had_samples}"
        return
    exact = [_without_samples(side, sampling, had_samples) for side in (found, expected)]
    yield from differences(exact[0], exact[1], tolerance, place)
    for row, (pair, pair_before) in enumerate(zip(*bounds, strict=True)):
        if not had_samples[row]:
            continue
        (low, high), (low_before, high_before) = map(float, pair), map(float, pair_before)
        # Two 95 % intervals that are farther apart than both are wide: estimates of the same number differ so by more
        # than five standard errors of their difference, less than once in a million rows.
        apart = max(low, low_before) - min(high, high_before)
        if apart > (high - low) + (high_before - low_before) + tolerance.absolute:
            yield f"{place}: row {row} was sampled as {low:g} to {high:g}, not {low_before:g} to {high_before:g}"


def _without_samples(value: dict[str, Any], sampling: Sampling, had_samples: Sequence[bool]) -> dict[str, Any]:
    columns = {name: cells for name, cells in value["values"].items() if name not in sampling.columns}
    if "token_evals" in columns:
        cells = zip(columns["token_evals"], had_samples, strict=True)
        columns["token_evals"] = [None if is_sampled else cell for cell, is_sampled in cells]
    return {"columns": value["columns"], "values": columns}
