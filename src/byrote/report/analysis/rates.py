"""Rates of a run by criterion, split, ε and τ, each with an interval that respects overlapping windows."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from byrote.stats.clusters import Places, Units, choose_units, rate_over_units
from byrote.stats.intervals import Rate
from byrote.stats.population import Flags, Floats, Population
from byrote.types import Split


class Criterion(StrEnum):
    """What has to hold for a window to count."""

    GREEDY = "greedy"
    """The greedy continuation is within ε edits of the target."""
    VERBATIM = "verbatim"
    """p_z ≥ τ."""
    NEAR = "near"
    """The lower bound on the near-verbatim mass within ε edits is ≥ τ."""
    NOT_RULED_OUT = "not_ruled_out"
    """The upper bound on that mass is ≥ τ: at most these windows are extractable within ε edits."""


HEADLINE_CRITERIA = (Criterion.GREEDY, Criterion.VERBATIM, Criterion.NEAR)


@dataclass(frozen=True)
class CriterionRate:
    """How many windows of a split meet a criterion. `edits` is None where ε plays no part."""

    criterion: Criterion
    split: Split
    edits: int | None
    hits: int
    rate: Rate


def split_rows(population: Population, split: Split) -> Flags:
    """The windows of a split that enter its rates."""
    in_split = population.is_control if split is Split.CONTROL else ~population.is_control
    return population.is_rated & in_split


def parts_of(population: Population) -> dict[Split, Population]:
    """The windows that enter the rates of each split that has any, target first."""
    parts = {split: population.select(split_rows(population, split)) for split in Split}
    return {split: part for split, part in parts.items() if len(part)}


def places_of(population: Population) -> Places:
    """Where the windows lie, for intervals that hold although they overlap."""
    span = int(np.median(population.char_end - population.char_start))
    return Places.of(population.place_document, population.place_start, window_chars=max(span, 1))


def units_of(population: Population) -> Units:
    """The independent units of a population, one choice for all its criteria: documents, or blocks of text as long as
    the masses of neighbours resemble each other, or where no masses were measured, the greedy answers."""
    if population.has_masses or population.greedy_distance is None:
        values = population.mass(population.edit_budget)
    else:
        values = (population.greedy_distance == 0).astype(np.float64)
    return units_by_rank(places_of(population), values)


def units_by_rank(places: Places, values: Floats) -> Units:
    """By ranks, because every criterion is a threshold on the mass."""
    return choose_units(places, np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.float64))


def hits_of(population: Population, criterion: Criterion, *, edits: int, threshold: float) -> Flags | None:
    """Which windows meet the criterion; None when the run did not measure it."""
    if criterion is Criterion.GREEDY:
        return None if population.greedy_distance is None else population.greedy_distance <= edits
    if criterion is Criterion.VERBATIM:
        return None if population.p_verbatim is None else population.p_verbatim >= threshold
    if criterion is Criterion.NOT_RULED_OUT:
        return None if population.mass_upper is None else population.mass_upper[:, edits] >= threshold
    return None if population.mass_lower is None else population.mass(edits) >= threshold


def rate_fields(rate: Rate, hits: int | None = None) -> dict[str, object]:
    """The columns that a rate has in every table."""
    return {
        "windows": rate.n,
        **({} if hits is None else {"hits": hits}),
        "rate": rate.value,
        "interval_low": rate.interval.low,
        "interval_high": rate.interval.high,
        "note": rate.interval.reason,
    }


def rates_at_budget(
    part: Population, threshold: float, criteria: Iterable[Criterion]
) -> list[tuple[Criterion, int, Rate]]:
    """Hits and rate of the criteria that were measured: greedy answers exact, as in every other table, near-verbatim
    at the whole budget; none where no window is."""
    rates: list[tuple[Criterion, int, Rate]] = []
    units = units_of(part) if len(part) else None
    for criterion in criteria:
        edits = 0 if criterion is Criterion.GREEDY else part.edit_budget
        hits = hits_of(part, criterion, edits=edits, threshold=threshold)
        if units is not None and hits is not None:
            rates.append((criterion, int(hits.sum()), rate_over_units(hits, units)))
    return rates


def rates_by_criterion(population: Population, threshold: float) -> list[CriterionRate]:
    """Every measured criterion at every ε it depends on, for every split that has windows."""
    rates: list[CriterionRate] = []
    for split, part in parts_of(population).items():
        units = units_of(part)
        for criterion in Criterion:
            every_edits = [None] if criterion is Criterion.VERBATIM else list(range(part.edit_budget + 1))
            for edits in every_edits:
                hits = hits_of(part, criterion, edits=edits or 0, threshold=threshold)
                if hits is not None:
                    rates.append(CriterionRate(criterion, split, edits, int(hits.sum()), rate_over_units(hits, units)))
    return rates


def rate_for(
    rates: list[CriterionRate], criterion: Criterion, *, split: Split, edits: int | None
) -> CriterionRate | None:
    """The entry with these keys, or None when it was not measured."""
    wanted = (criterion, split, edits)
    return next((entry for entry in rates if (entry.criterion, entry.split, entry.edits) == wanted), None)


def threshold_grid(*anchors: float) -> tuple[float, ...]:
    """The stops of the τ slider: ten per decade from 1e-6 to 1, and every anchor, ascending.

    Stops are short decimals, so that Python and the browser hold the same double and count the same windows.
    """
    mantissas = ("1", "1.25", "1.6", "2", "2.5", "3.2", "4", "5", "6.3", "8")
    stops = {float(f"{mantissa}e-{decade}") for decade in range(1, 7) for mantissa in mantissas}
    return tuple(sorted(stops | {1.0} | {float(anchor) for anchor in anchors}))


def interval_grid(population: Population, thresholds: tuple[float, ...]) -> Floats:
    """[2 splits, ε, τ, (low, high)]: the interval of the near-verbatim rate at every stop of both sliders.

    NaN where a split has no windows or too few units to judge by.
    """
    grid = np.full((2, population.edit_budget + 1, len(thresholds), 2), np.nan)
    for split, part in parts_of(population).items():
        row, units = list(Split).index(split), units_of(part)
        for edits in range(population.edit_budget + 1):
            seen: dict[int, tuple[float, float]] = {}
            for column, threshold in enumerate(thresholds):
                hits = part.mass(edits) >= threshold
                # Thresholds with the same number of hits have the same hits: the sets are nested.
                count = int(hits.sum())
                if count not in seen:
                    interval = rate_over_units(hits, units).interval
                    seen[count] = (interval.low, interval.high)
                grid[row, edits, column] = seen[count]
    return grid
